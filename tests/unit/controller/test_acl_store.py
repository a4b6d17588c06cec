"""ACLs on every metadata store: Kafka's znodes, and changes that all brokers see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.controller.losing_session import LosingSession
from tests.unit.metadata_store.backends import Backend, on_every_backend

from penstock.controller.acl_store import AclStore
from penstock.controller.acl_znodes import (
    EXTENDED_CHANGES,
    LITERAL_CHANGES,
    UnstorableName,
    acl_path,
    decode_entries,
    decode_notification,
    encode_entries,
    encode_notification,
)
from penstock.logs.event_logger import message_logger
from penstock.metadata_store.errors import DamagedZnode, NoNode
from penstock.metadata_store.interface import Session
from penstock.model.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclPermission,
    PatternType,
    ResourcePattern,
)
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.server.current_session import CurrentSession

HANG_S = 120
TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "etl-", PatternType.PREFIXED)
READ = AccessControlEntry("User:ada", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = AccessControlEntry("User:ada", "10.0.0.1", AclOperation.WRITE, AclPermission.ALLOW)
DENY = AccessControlEntry("User:bob", "*", AclOperation.ALL, AclPermission.DENY)


class BrokerCopy:
    """A broker's rules, and what it has logged."""

    def __init__(self, session: Session) -> None:
        self.session = CurrentSession(session)
        self.rules: dict[ResourcePattern, set[AccessControlEntry]] = {}
        self.logged: list[str] = []
        self.changed = asyncio.Event()
        self.acls = AclStore(self.session, self._replace, message_logger(self.logged.append))

    def _replace(self, pattern: ResourcePattern, entries: object) -> None:
        self.rules[pattern] = set(entries)  # type: ignore[call-overload]
        self.changed.set()

    async def wait_for(self, pattern: ResourcePattern, entries: set[AccessControlEntry]) -> None:
        while self.rules.get(pattern, set()) != entries:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def running(backend: Backend) -> AsyncIterator[BrokerCopy]:
    copy = BrokerCopy(await backend.open_session())
    await copy.acls.load()
    task = asyncio.create_task(copy.acls.follow())
    try:
        yield copy
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_every_backend
async def test_a_rule_lies_where_kafka_stores_it_in_kafkas_format(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.acls.add([AclBinding(TOPIC, READ), AclBinding(TOPIC, DENY)])
        await broker.acls.add([AclBinding(PREFIX, WRITE)])
        literal = await broker.session.get("/kafka-acl/Topic/orders")
        assert json.loads(literal.data) == {
            "version": 1,
            "acls": [
                {
                    "principal": "User:ada",
                    "permissionType": "Allow",
                    "operation": "Read",
                    "host": "*",
                },
                {
                    "principal": "User:bob",
                    "permissionType": "Deny",
                    "operation": "All",
                    "host": "*",
                },
            ],
        }
        prefixed = "/kafka-acl-extended/prefixed/TransactionalId/etl-"
        assert b'"host":"10.0.0.1"' in (await broker.session.get(prefixed)).data
        [change] = await broker.session.children(LITERAL_CHANGES)
        assert change == "acl_changes_0000000000"
        announced = (await broker.session.get(f"{LITERAL_CHANGES}/{change}")).data
        assert announced == b"Topic:orders"
        [change] = await broker.session.children(EXTENDED_CHANGES)
        announced = (await broker.session.get(f"{EXTENDED_CHANGES}/{change}")).data
        assert json.loads(announced) == {
            "version": 1,
            "resourceType": "TransactionalId",
            "name": "etl-",
            "patternType": "PREFIXED",
        }


@on_every_backend
async def test_every_broker_sees_a_change(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await one.acls.add([AclBinding(TOPIC, READ), AclBinding(PREFIX, WRITE)])
        assert one.rules[TOPIC] == {READ}  # before the call returns
        await other.wait_for(TOPIC, {READ})
        await other.wait_for(PREFIX, {WRITE})
        assert await other.acls.remove([AclFilter(name="orders")]) == [[AclBinding(TOPIC, READ)]]
        assert other.rules[TOPIC] == set()
        await one.wait_for(TOPIC, set())
        with pytest.raises(NoNode):
            await one.session.get(acl_path(TOPIC))
        assert one.acls.bindings() == other.acls.bindings() == [AclBinding(PREFIX, WRITE)]


@on_every_backend
async def test_a_broker_that_starts_later_has_all_rules(backend: Backend) -> None:
    async with running(backend) as one:
        await one.acls.add([AclBinding(TOPIC, READ), AclBinding(PREFIX, WRITE)])
        async with running(backend) as late:
            assert late.rules == {TOPIC: {READ}, PREFIX: {WRITE}}


@on_every_backend
async def test_rules_of_brokers_that_write_at_once_are_all_kept(backend: Backend) -> None:
    entries = [READ._replace(principal=f"User:{number}") for number in range(12)]
    async with running(backend) as one, running(backend) as other:
        await asyncio.gather(
            *(
                broker.acls.add([AclBinding(TOPIC, entry)])
                for broker, part in ((one, entries[::2]), (other, entries[1::2]))
                for entry in part[:1]
            )
        )
        for broker, part in ((one, entries[::2]), (other, entries[1::2])):
            for entry in part[1:]:
                await broker.acls.add([AclBinding(TOPIC, entry)])
        await one.wait_for(TOPIC, set(entries))
        await other.wait_for(TOPIC, set(entries))


@on_every_backend
async def test_removing_one_of_three_rules_leaves_the_others(backend: Backend) -> None:
    """CVE-2024-27309."""
    async with running(backend) as broker, running(backend) as other:
        await broker.acls.add([AclBinding(TOPIC, entry) for entry in (READ, WRITE, DENY)])
        wanted = AclFilter(name="orders", operation=AclOperation.READ)
        assert await broker.acls.remove([wanted, wanted]) == [[AclBinding(TOPIC, READ)], []]
        assert broker.rules[TOPIC] == {WRITE, DENY}
        await other.wait_for(TOPIC, {WRITE, DENY})


@on_every_backend
async def test_a_new_session_reads_everything_again(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await one.acls.add([AclBinding(TOPIC, READ)])
        await other.wait_for(TOPIC, {READ})
        await backend.expire(other.session.current)
        await one.acls.remove([AclFilter()])
        await one.acls.add([AclBinding(PREFIX, DENY)])
        assert other.rules[TOPIC] == {READ}  # without the store it decides by what it knows
        other.session.current = await backend.open_session()
        await other.wait_for(PREFIX, {DENY})
        await other.wait_for(TOPIC, set())
        await one.acls.add([AclBinding(TOPIC, WRITE)])  # it watches again
        await other.wait_for(TOPIC, {WRITE})


@on_every_backend
async def test_a_rule_that_was_removed_meanwhile_allows_nothing_after_a_loss(
    backend: Backend,
) -> None:
    """The connection is lost once more while a new session reads the rules."""
    async with running(backend) as one, running(backend) as other:
        await one.acls.add([AclBinding(TOPIC, READ), AclBinding(TOPIC, WRITE)])
        await other.wait_for(TOPIC, {READ, WRITE})
        await backend.expire(other.session.current)
        await one.acls.remove([AclFilter(operation=AclOperation.WRITE)])
        other.session.current = LosingSession(await backend.open_session(), acl_path(TOPIC))
        async with asyncio.timeout(HANG_S):
            await other.wait_for(TOPIC, {READ})


@on_every_backend
async def test_kafkas_own_tools_may_change_rules(backend: Backend) -> None:
    async with running(backend) as broker:
        session = broker.session
        await session.create(acl_path(TOPIC), encode_entries([READ]))
        path = f"{LITERAL_CHANGES}/acl_changes_"
        await session.create(path, encode_notification(TOPIC), sequential=True)
        await broker.wait_for(TOPIC, {READ})


@on_every_backend
async def test_rules_that_cannot_be_read_leave_the_earlier_ones_in_effect(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.acls.add([AclBinding(TOPIC, DENY)])
        session = broker.session
        await session.set(acl_path(TOPIC), b'{"version":1,"acls":[{"principal":"User:ada"}]}')
        await session.create(
            f"{LITERAL_CHANGES}/acl_changes_", encode_notification(TOPIC), sequential=True
        )
        await broker.acls.add([AclBinding(PREFIX, WRITE)])
        await broker.wait_for(PREFIX, {WRITE})
        with pytest.raises(DamagedZnode):
            await broker.acls.add([AclBinding(TOPIC, READ)])
        assert broker.rules[TOPIC] == {DENY}
        late = BrokerCopy(await backend.open_session())
        with pytest.raises(DamagedZnode, match="kafka-acl/Topic/orders"):
            await late.acls.load()  # a starting broker has no earlier ones


@on_every_backend
async def test_a_damaged_announcement_has_all_rules_read_again(backend: Backend) -> None:
    async with running(backend) as broker:
        session = broker.session
        await session.create(acl_path(TOPIC), encode_entries([READ]))
        await session.create(f"{LITERAL_CHANGES}/acl_changes_", b"Nothing:x", sequential=True)
        await broker.wait_for(TOPIC, {READ})
        assert any("all rules are read again" in line for line in broker.logged)


@pytest.mark.parametrize("name", ["a/b", ".", "..", "a\0b", "\ud7ff\ue000"])
def test_names_that_no_path_can_have_are_refused(name: str) -> None:
    with pytest.raises(UnstorableName):
        acl_path(ResourcePattern(ResourceType.GROUP, name))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":1}',
        b'{"acls":[{"principal":7,"permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"acls":[{"principal":"User:a","permissionType":"May","operation":"Read","host":"*"}]}',
        b'{"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
    ],
)
def test_data_that_is_not_understood_is_no_empty_list(data: bytes) -> None:
    with pytest.raises(DamagedZnode):
        decode_entries("/kafka-acl/Topic/x", data)


@pytest.mark.parametrize(
    "pattern",
    [TOPIC, PREFIX, ResourcePattern(ResourceType.GROUP, "a:b"), PREFIX._replace(name=":")],
)
def test_an_announcement_names_its_resource(pattern: ResourcePattern) -> None:
    is_literal = pattern.pattern_type is PatternType.LITERAL
    root = LITERAL_CHANGES if is_literal else EXTENDED_CHANGES
    data = encode_notification(pattern)
    assert decode_notification(f"{root}/acl_changes_0000000000", data) == pattern
