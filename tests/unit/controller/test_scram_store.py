"""SCRAM users on every metadata store: Kafka's znodes, and changes that all brokers follow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.controller.losing_session import LosingSession
from tests.unit.metadata_store.backends import Backend, on_every_backend

from penstock.controller.scram_store import NoSuchCredential, ScramStore
from penstock.controller.scram_znodes import (
    decode_credentials,
    encode_credential,
    find_user,
    user_path,
)
from penstock.controller.znodes import CONFIG_CHANGES, USER_CONFIGS, encode_configs
from penstock.logs.event_logger import message_logger
from penstock.metadata_store.errors import DamagedZnode
from penstock.metadata_store.interface import Session
from penstock.protocol.scram import ScramCredential, ScramMechanism, make_credential
from penstock.security.sasl.scram_users import ScramCredentials, ScramUsers
from penstock.server.current_session import CurrentSession

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
HANG_S = 120
OLD = make_credential(SHA_256, "old")
NEW = make_credential(SHA_256, "new")
OTHER = make_credential(SHA_512, "new")


class BrokerUsers(ScramUsers):
    """A broker's copy, which a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def replace(self, user: str, credentials: ScramCredentials) -> None:
        super().replace(user, credentials)
        self.changed.set()

    async def wait_for(self, user: str, credentials: ScramCredentials | None) -> None:
        while self.find(user) != credentials:
            self.changed.clear()
            await self.changed.wait()


class FollowingBroker:
    def __init__(self, session: Session) -> None:
        self.session = CurrentSession(session)
        self.users = BrokerUsers()
        self.logged: list[str] = []
        self.store = ScramStore(self.session, self.users, message_logger(self.logged.append))


@asynccontextmanager
async def running(backend: Backend) -> AsyncIterator[FollowingBroker]:
    broker = FollowingBroker(await backend.open_session())
    await broker.store.load()
    task = asyncio.create_task(broker.store.follow())
    try:
        yield broker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_every_backend
async def test_a_user_lies_where_kafka_stores_it_in_kafkas_format(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.store.alter("ada@x y", {SHA_256: OLD})
        node = json.loads((await broker.session.get("/config/users/ada%40x%20y")).data)
        assert node == {"version": 1, "config": {"SCRAM-SHA-256": encode_credential(OLD)}}
        [change] = await broker.session.children(CONFIG_CHANGES)
        assert change == "config_change_0000000000"
        announced = json.loads((await broker.session.get(f"{CONFIG_CHANGES}/{change}")).data)
        assert announced == {"version": 2, "entity_path": "users/ada%40x%20y"}


@on_every_backend
async def test_every_broker_follows_changes(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await one.store.alter("ada", {SHA_256: OLD})
        assert one.users.find("ada") == {SHA_256: OLD}  # before the call returns
        await other.users.wait_for("ada", {SHA_256: OLD})
        await other.store.alter("ada", {SHA_256: NEW, SHA_512: OTHER})
        await one.users.wait_for("ada", {SHA_256: NEW, SHA_512: OTHER})
        await one.store.alter("ada", {SHA_256: None, SHA_512: None})
        await other.users.wait_for("ada", None)
        assert await other.store.list_users() == {}


@on_every_backend
async def test_a_broker_that_starts_later_has_all_users_and_the_same_fake_salts(
    backend: Backend,
) -> None:
    async with running(backend) as one:
        await one.store.alter("ada", {SHA_256: OLD})
        async with running(backend) as later:
            assert later.users.find("ada") == {SHA_256: OLD}
            salts = {broker.users.get_credential("nobody", SHA_256).salt for broker in (one, later)}
            assert len(salts) == 1


@on_every_backend
async def test_quotas_beside_a_credential_stay(backend: Backend) -> None:
    async with running(backend) as broker:
        path = user_path("ada")
        await broker.session.create(path, encode_configs({"producer_byte_rate": "1000"}))
        await broker.store.alter("ada", {SHA_256: OLD})
        await broker.store.alter("ada", {SHA_256: None})
        node = json.loads((await broker.session.get(path)).data)
        assert node["config"] == {"producer_byte_rate": "1000"}


@on_every_backend
async def test_a_user_that_a_tool_adds_or_removes_is_followed(backend: Backend) -> None:
    """As somebody may by hand, without an announcement."""
    async with running(backend) as broker:
        configs = {"SCRAM-SHA-256": encode_credential(OLD)}
        await broker.session.create(user_path("ada"), encode_configs(configs))
        await broker.users.wait_for("ada", {SHA_256: OLD})
        await broker.session.delete(user_path("ada"))
        await broker.users.wait_for("ada", None)


@on_every_backend
async def test_changes_of_a_lost_session_are_caught_up(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        lost = other.session.current
        other.session.current = await backend.open_session()
        await one.store.alter("ada", {SHA_256: OLD})
        await backend.expire(lost)
        await other.users.wait_for("ada", {SHA_256: OLD})


@on_every_backend
async def test_a_password_that_was_replaced_meanwhile_opens_nothing_after_a_loss(
    backend: Backend,
) -> None:
    """The connection is lost once more while a new session reads the users."""
    async with running(backend) as one, running(backend) as other:
        await one.store.alter("ada", {SHA_256: OLD})
        await other.users.wait_for("ada", {SHA_256: OLD})
        await backend.expire(other.session.current)
        await one.store.alter("ada", {SHA_256: NEW})
        other.session.current = LosingSession(await backend.open_session(), user_path("ada"))
        async with asyncio.timeout(HANG_S):
            await other.users.wait_for("ada", {SHA_256: NEW})


@on_every_backend
async def test_a_damaged_credential_opens_nothing_and_others_stay(backend: Backend) -> None:
    async with running(backend) as broker:
        await broker.store.alter("bob", {SHA_256: OLD})
        secret = encode_credential(NEW).replace("iterations=4096", "iterations=1")
        await broker.session.create(user_path("ada"), encode_configs({"SCRAM-SHA-256": secret}))
        while not broker.logged:  # noqa: ASYNC110 - the test's limit bounds it
            await asyncio.sleep(0.001)
        assert broker.users.find("ada") is None
        assert broker.users.find("bob") == {SHA_256: OLD}
        assert secret not in broker.logged[0]
        assert "1 iterations of SCRAM; allowed are 4096 to 16384" in broker.logged[0]
        assert set(await broker.store.list_users()) == {"bob"}


@on_every_backend
async def test_concurrent_changes_of_one_user_are_all_made(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        await asyncio.gather(
            one.store.alter("ada", {SHA_256: OLD}), other.store.alter("ada", {SHA_512: OTHER})
        )
        assert await one.store.read("ada") == {SHA_256: OLD, SHA_512: OTHER}


@on_every_backend
async def test_a_first_user_is_created_once(backend: Backend) -> None:
    async with running(backend) as one, running(backend) as other:
        created = await asyncio.gather(
            one.store.create_if_absent("ada", lambda: {SHA_256: OLD}),
            other.store.create_if_absent("ada", lambda: {SHA_256: NEW}),
        )
        assert sorted(created) == [False, True]
        winner = OLD if created[0] else NEW
        assert await one.store.read("ada") == {SHA_256: winner}


@on_every_backend
async def test_deleting_what_is_absent_is_refused(backend: Backend) -> None:
    async with running(backend) as broker:
        with pytest.raises(NoSuchCredential, match="has no credential of SCRAM-SHA-256"):
            await broker.store.alter("ada", {SHA_256: None})
        assert await broker.session.children(USER_CONFIGS) == ()


@pytest.mark.parametrize("user", ["ada", "a/b", ".", "..", "a~b*c", "<default>", "ü €", "a%2Eb"])
def test_any_name_has_a_path_of_its_own(user: str) -> None:
    path = user_path(user)
    assert path.count("/") == 3
    assert path.rpartition("/")[2] not in ("", ".", "..", "<default>")
    assert find_user(path) == user


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096",
        encode_credential(OLD).replace("salt=", "salt=!"),
        encode_credential(OLD).replace("iterations=4096", "iterations=many"),
        encode_credential(OLD).replace("iterations=4096", "iterations=99999"),
        encode_credential(OTHER),
    ],
    ids=["empty", "short", "no base64", "no number", "iterations", "another mechanism's"],
)
def test_a_malformed_credential_is_damage_without_a_secret(text: str) -> None:
    with pytest.raises(DamagedZnode) as damaged:
        decode_credentials("/config/users/ada", {"SCRAM-SHA-256": text})
    for part in filter(None, (part.partition("=")[2] for part in text.split(","))):
        assert len(part) < 10 or part not in str(damaged.value)


def test_a_credential_is_read_as_it_was_written() -> None:
    credential: ScramCredential = OTHER
    configs = {"SCRAM-SHA-512": encode_credential(credential), "consumer_byte_rate": "1"}
    assert decode_credentials("/config/users/ada", configs) == {SHA_512: credential}
