"""Client quotas on every metadata store: Kafka's znodes, and changes that all brokers see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.unit.metadata_store.backends import Backend, on_every_backend

from penstock.controller.acl_store import TooManyChanges
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.quota_store import QuotaStore
from penstock.controller.quota_znodes import (
    QUOTA_ZNODES,
    find_quota_entity,
    quota_path,
    sanitize,
)
from penstock.logs.event_logger import message_logger
from penstock.metadata_store.errors import BadVersion, DamagedZnode, MultiFailed
from penstock.metadata_store.interface import Operation, Result, Session
from penstock.model.quotas import (
    DEFAULT_ENTITY,
    QuotaEntity,
    QuotaKey,
    QuotaOperation,
    Quotas,
)
from penstock.server.current_session import CurrentSession

HANG_S = 120
ADA = QuotaEntity("ada")
BOTH = QuotaEntity("ada", "app")
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENTAGE = QuotaKey.REQUEST_PERCENTAGE
CREATION = QuotaKey.CONNECTION_CREATION_RATE
SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


class BrokerQuotas:
    """A broker's quotas, as it enforces them."""

    def __init__(self, session: Session) -> None:
        self.session = CurrentSession(session)
        self.enforced: Mapping[QuotaEntity, Quotas] = {}
        self.changed = asyncio.Event()
        self.store = QuotaStore(self.session, self._replace, message_logger(print))

    def _replace(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        self.enforced = dict(quotas)
        self.changed.set()

    async def wait_for(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        async with asyncio.timeout(HANG_S):
            while self.enforced != quotas:
                self.changed.clear()
                await self.changed.wait()

    async def set(self, entity: QuotaEntity, key: QuotaKey, value: float | None) -> None:
        await self.store.alter(entity, [QuotaOperation(key, value)])


@asynccontextmanager
async def running(backend: Backend) -> AsyncIterator[BrokerQuotas]:
    broker = BrokerQuotas(await backend.open_session())
    await broker.store.load()
    task = asyncio.create_task(broker.store.follow())
    try:
        yield broker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_every_backend
async def test_a_quota_lies_where_kafka_stores_it_in_kafkas_format(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.set(ADA, PRODUCER, 1024.0)
        await broker.set(BOTH, PERCENTAGE, 12.5)
        await broker.set(QuotaEntity(None, DEFAULT_ENTITY), CONSUMER, 2048.0)
        await broker.set(QuotaEntity(ip="127.0.0.1"), CREATION, 10.0)
        for path, config in (
            ("/config/users/ada", {"producer_byte_rate": "1024"}),
            ("/config/users/ada/clients/app", {"request_percentage": "12.5"}),
            ("/config/clients/<default>", {"consumer_byte_rate": "2048"}),
            ("/config/ips/127.0.0.1", {"connection_creation_rate": "10"}),
        ):
            stored = json.loads((await broker.session.get(path)).data)
            assert stored == {"version": 1, "config": config}
        changes = sorted(await broker.session.children("/config/changes"))
        assert changes[0] == "config_change_0000000000"
        announced = [
            json.loads((await broker.session.get(f"/config/changes/{name}")).data)
            for name in changes
        ]
        assert [fields["version"] for fields in announced] == [2] * 4
        assert [fields["entity_path"] for fields in announced] == [
            "users/ada",
            "users/ada/clients/app",
            "clients/<default>",
            "ips/127.0.0.1",
        ]


@on_every_backend
async def test_every_broker_sees_a_change(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await one.set(ADA, PRODUCER, 1024.0)
        assert one.enforced == {ADA: {PRODUCER: 1024.0}}  # before the call returns
        await other.wait_for({ADA: {PRODUCER: 1024.0}})
        await other.set(BOTH, PRODUCER, 5.0)
        await one.wait_for({ADA: {PRODUCER: 1024.0}, BOTH: {PRODUCER: 5.0}})
        await one.set(ADA, PRODUCER, None)
        await other.wait_for({BOTH: {PRODUCER: 5.0}})
        async with running(backend) as late:
            assert late.enforced == {BOTH: {PRODUCER: 5.0}}
            assert late.store.quotas() == late.enforced


@on_every_backend
async def test_edits_by_hand_are_noticed_without_an_announcement(backend: Backend) -> None:
    session = await backend.open_session()
    await ensure_znodes(session, QUOTA_ZNODES)
    async with running(backend) as broker:
        config = b'{"version":1,"config":{"producer_byte_rate":"1000"}}'
        await session.create("/config/users/ada", config)
        await broker.wait_for({ADA: {PRODUCER: 1000.0}})
        await session.set("/config/users/ada", config.replace(b"1000", b"7"))
        await broker.wait_for({ADA: {PRODUCER: 7.0}})
        await session.create("/config/users/ada/clients")
        await session.create("/config/users/ada/clients/app", config)
        await broker.wait_for({ADA: {PRODUCER: 7.0}, BOTH: {PRODUCER: 1000.0}})
        await session.set("/config/users/ada", b"{")  # what was in effect stays
        await session.delete("/config/users/ada/clients/app")
        await broker.wait_for({ADA: {PRODUCER: 7.0}})
        await session.delete("/config/users/ada/clients")
        await session.delete("/config/users/ada")
        await broker.wait_for({})
        await session.create("/config/users/ada", config)  # watched again
        await broker.wait_for({ADA: {PRODUCER: 1000.0}})


@on_every_backend
async def test_credentials_of_the_same_znode_stay(backend: Backend) -> None:
    session = await backend.open_session()
    await ensure_znodes(session, QUOTA_ZNODES)
    config = {"SCRAM-SHA-256": SCRAM}
    await session.create("/config/users/ada", json.dumps({"version": 1, "config": config}).encode())
    async with running(backend) as broker:
        assert broker.enforced == {}
        await broker.set(ADA, PRODUCER, 1024.0)
        assert broker.enforced == {ADA: {PRODUCER: 1024.0}}
        await broker.set(ADA, PRODUCER, None)
    stored = json.loads((await session.get("/config/users/ada")).data)
    assert stored["config"] == config


@on_every_backend
async def test_quotas_that_brokers_write_at_once_are_all_kept(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await asyncio.gather(
            one.set(BOTH, PRODUCER, 1.0),
            other.set(BOTH, CONSUMER, 2.0),
            other.set(ADA, PRODUCER, 3.0),
        )
        everything = {ADA: {PRODUCER: 3.0}, BOTH: {PRODUCER: 1.0, CONSUMER: 2.0}}
        await one.wait_for(everything)
        await other.wait_for(everything)


@on_every_backend
async def test_a_new_session_reads_everything_again(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await one.set(ADA, PRODUCER, 1.0)
        await other.wait_for({ADA: {PRODUCER: 1.0}})
        await backend.expire(other.session.current)
        await one.set(ADA, PRODUCER, None)
        await one.set(BOTH, PRODUCER, 2.0)
        assert other.enforced == {ADA: {PRODUCER: 1.0}}  # what it knows is enforced
        other.session.current = await backend.open_session()
        await other.wait_for({BOTH: {PRODUCER: 2.0}})
        await one.set(BOTH, PRODUCER, 3.0)  # it watches again
        await other.wait_for({BOTH: {PRODUCER: 3.0}})


@on_every_backend
async def test_a_damaged_znode_is_not_overwritten(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.session.create("/config/users/ada", b"[]")
        with pytest.raises(DamagedZnode):
            await broker.set(ADA, PRODUCER, 1.0)


class NeverFirst(CurrentSession):
    """A session whose conditional writes always lose."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        raise MultiFailed(0, BadVersion("/config/users/ada", expected=0), len(operations))


@on_every_backend
async def test_a_writer_that_always_loses_gives_up(backend: Backend) -> None:
    broker = BrokerQuotas(await backend.open_session())
    await broker.store.load()
    store = QuotaStore(
        NeverFirst(broker.session.current), lambda quotas: None, message_logger(print)
    )
    with pytest.raises(TooManyChanges, match="/config/users/ada has changed"):
        await store.alter(ADA, [QuotaOperation(PRODUCER, 1.0)])


@pytest.mark.parametrize("name", ["a", "a/b", "a b", "ü", "*", "a~b", "<default>", "a%2Fb", "a+b"])
def test_names_are_quoted_and_read_back(name: str) -> None:
    for entity in (QuotaEntity(name), QuotaEntity(None, name), QuotaEntity(name, name)):
        assert find_quota_entity(quota_path(entity)) == entity


def test_names_are_quoted_as_kafka_quotes_them() -> None:
    """From Kafka's Sanitizer: URLEncoder of Java, with a blank as %20 and * as %2A."""
    assert sanitize("CN=ada, O=Shop") == "CN%3Dada%2C%20O%3DShop"
    assert sanitize("a*b~c_d-e.f") == "a%2Ab%7Ec_d-e.f"
    assert quota_path(QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY)) == (
        "/config/users/<default>/clients/<default>"
    )


@pytest.mark.parametrize("name", [".", ".."])
def test_names_of_dots_are_quoted(name: str) -> None:
    path = quota_path(QuotaEntity(name))
    assert path == f"/config/users/{name.replace('.', '%2E')}"
    assert find_quota_entity(path) == QuotaEntity(name)
