"""Config znodes that a plain client changes, and what the brokers are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from tests.unit.controller.cluster import Cluster, code_of, run_scenario, settled

from penstock.controller.config_resources import ClientEntity, find_entity_problem
from penstock.controller.config_watches import NOTIFICATION_TTL_MS
from penstock.controller.controller import Controller
from penstock.controller.interface import (
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
    CreatableTopic,
)
from penstock.controller.state import ClusterState
from penstock.controller.znodes import decode_config_change, decode_configs
from penstock.metadata_store.errors import DamagedZnode, NodeExists
from penstock.metadata_store.interface import Session, SetData
from penstock.model.admin import ConfigOperation
from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.model.errors import ErrorCode

WAIT_MS = 30_000
SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def config_of(**configs: object) -> bytes:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return json.dumps({"version": 1, "config": named}).encode()


async def make(controller: Controller, *names: str, **configs: str) -> None:
    wanted = [
        CreatableTopic(
            name=name, partitions=1, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        for name in names
    ]
    made = await controller.create_topics(wanted, validate_only=False, timeout_ms=WAIT_MS)
    assert {code_of(result) for result in made} == {ErrorCode.NONE}
    await settled()


async def alter(controller: Controller, scope: ConfigScope, name: str, **configs: str) -> ErrorCode:
    entries = tuple(
        ConfigEntryChange(key.replace("_", "."), ConfigOperation.SET, value)
        for key, value in configs.items()
    )
    change = ConfigResourceChange(scope=scope, name=name, changes=entries, replace=False)
    [error] = await controller.alter_configs([change], validate_only=False)
    return code_of(error)


def state_of(controller: Controller) -> ClusterState:
    state = controller.find_state()
    assert state is not None
    return state


def broker_view(cluster: Cluster, topic: str = "t") -> Mapping[str, str]:
    return cluster.channel.broker(0).topics[topic].configs


def warnings(cluster: Cluster, path: str) -> list[str]:
    return [line for line in cluster.reports if path in line]


async def put(session: Session, path: str, data: bytes) -> None:
    """As a plain client that does not know whether the znode exists."""
    try:
        await session.create(path, data)
    except NodeExists:
        await session.set(path, data)
    await settled()


class TestTopicConfigs:
    def test_are_told_to_every_broker_at_each_change(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t")
                session = await cluster.store.open_session()
                for value in ("7", "8", "9"):
                    await put(session, "/config/topics/t", config_of(retention_ms=value))
                    for broker in (0, 1):
                        configs = cluster.channel.broker(broker).topics["t"].configs
                        assert configs == {"retention.ms": value}

        run_scenario(scenario, 0, 1)

    def test_may_be_numbers_and_booleans(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t")
                session = await cluster.store.open_session()
                changed = config_of(retention_ms=7, preallocate=True)
                await put(session, "/config/topics/t", changed)
                assert broker_view(cluster) == {"retention.ms": "7", "preallocate": "true"}

        run_scenario(scenario)

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"{nonsense", "not JSON"),
            (b'{"version":1,"config":"a secret"}', "not a JSON object"),
            (config_of(retention_ms=None), "'retention.ms' is not text"),
            (config_of(retention_ms="long"), "long"),
            (config_of(retention_mss="7"), "retention.mss"),
            (b" " * 300_000, "at most"),
        ],
    )
    def test_that_are_bad_leave_the_previous_ones_in_force(self, data: bytes, why: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", retention_ms="5")
                session = await cluster.store.open_session()
                await put(session, "/config/topics/t", data)
                assert broker_view(cluster) == {"retention.ms": "5"}
                [line] = warnings(cluster, "/config/topics/t")
                assert why in line
                assert "previous configs stay in force" in line
                assert "a secret" not in line
                await put(session, "/config/topics/t", config_of(retention_ms="6"))
                assert broker_view(cluster) == {"retention.ms": "6"}
                assert state_of(controller).refused_configs == frozenset()

        run_scenario(scenario)

    def test_that_are_bad_are_mended_by_a_client(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", retention_ms="5")
                session = await cluster.store.open_session()
                await put(session, "/config/topics/t", b"{nonsense")
                altered = await alter(controller, ConfigScope.TOPIC, "t", segment_bytes="1000000")
                assert altered is ErrorCode.NONE
                assert broker_view(cluster) == {"retention.ms": "5", "segment.bytes": "1000000"}
                stored = (await session.get("/config/topics/t")).data
                assert decode_configs("", stored) == broker_view(cluster)

        run_scenario(scenario)

    def test_of_a_deleted_znode_are_the_brokers(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", "u", retention_ms="5")
                session = await cluster.store.open_session()
                for topic in ("t", "u"):
                    await session.delete(f"/config/topics/{topic}")
                await settled()
                assert (broker_view(cluster), broker_view(cluster, "u")) == ({}, {})
                await put(session, "/config/topics/t", config_of(retention_ms="6"))
                assert broker_view(cluster) == {"retention.ms": "6"}
                assert await alter(controller, ConfigScope.TOPIC, "u", flush_ms="9") is (
                    ErrorCode.NONE
                )
                assert broker_view(cluster, "u") == {"flush.ms": "9"}
                assert state_of(controller).absent_configs == frozenset()

        run_scenario(scenario)

    def test_of_internal_topics_stay_if_they_are_deleted(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                offsets = CreatableTopic(name="__consumer_offsets", assignment={0: (BrokerId(0),)})
                await controller.create_topics([offsets], validate_only=False, timeout_ms=WAIT_MS)
                await settled()
                session = await cluster.store.open_session()
                await session.delete("/config/topics/__consumer_offsets")
                await settled()
                assert broker_view(cluster, "__consumer_offsets")["cleanup.policy"] == "compact"
                assert len(warnings(cluster, "/config/topics/__consumer_offsets")) == 1

        run_scenario(scenario)

    def test_of_a_topic_that_is_created_again_are_watched(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await cluster.store.open_session()
                for value in ("7", "8"):
                    await make(controller, "t", retention_ms="5")
                    await put(session, "/config/topics/t", config_of(retention_ms=value))
                    assert broker_view(cluster) == {"retention.ms": value}
                    await put(session, "/config/topics/t", b"nonsense")
                    await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
                    await settled()
                    assert state_of(controller).refused_configs == frozenset()

        run_scenario(scenario)

    def test_elect_a_leader_when_they_allow_an_unclean_one(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                [made] = await controller.create_topics(
                    [CreatableTopic(name="t", assignment={0: (BrokerId(1), BrokerId(0))})],
                    validate_only=False,
                    timeout_ms=WAIT_MS,
                )
                assert code_of(made) is ErrorCode.NONE
                session = await cluster.store.open_session()
                state = json.loads((await session.get(STATE)).data)
                await session.set(STATE, json.dumps({**state, "isr": [1]}).encode())
                await cluster.leave(1)
                await settled()
            await cluster.sessions[0].close()
            await cluster.join(0)
            async with cluster.controlled() as controller:
                assert state_of(controller).topics["t"].partitions[0].leader == -1
                changed = config_of(unclean_leader_election_enable="true")
                await put(session, "/config/topics/t", changed)
                assert state_of(controller).topics["t"].partitions[0].leader == 0

        run_scenario(scenario, 0, 1)

    def test_cost_reads_of_the_changed_znodes_only(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            own = cluster.sessions[0]
            async with cluster.controlled() as controller:
                await make(controller, *(f"t{number}" for number in range(300)))
                session = await cluster.store.open_session()
                with CountedReads(own) as counts:
                    await put(session, "/config/topics/t7", config_of(retention_ms="7"))
                assert broker_view(cluster, "t7") == {"retention.ms": "7"}
                assert (counts.gets, counts.lists) == (1, 0)

        run_scenario(scenario)

    def test_of_many_topics_are_told_in_few_requests(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                names = [f"t{number}" for number in range(200)]
                await make(controller, *names)
                session = await cluster.store.open_session()
                before = len(cluster.channel.broker(0).requests)
                changed = config_of(retention_ms="7")
                await session.multi(
                    [SetData(path=f"/config/topics/{name}", data=changed) for name in names]
                )
                await settled()
                assert all(broker_view(cluster, name) == {"retention.ms": "7"} for name in names)
                requests = cluster.channel.broker(0).requests[before:]
                assert all(isinstance(request, UpdateMetadataRequest) for request in requests)
                assert len(requests) <= 2

        run_scenario(scenario)


STATE = "/brokers/topics/t/partitions/0/state"


class CountedReads:
    """Counts the reads of a session."""

    def __init__(self, session: Session) -> None:
        self._session, self._get, self._children = session, session.get, session.children
        self.gets = self.lists = 0

    def __enter__(self) -> CountedReads:
        async def get(path: str, watch: object = None) -> object:
            self.gets += 1
            return await self._get(path, watch)  # type: ignore[arg-type]

        async def children(path: str, watch: object = None) -> object:
            self.lists += 1
            return await self._children(path, watch)  # type: ignore[arg-type]

        self._session.get = get  # type: ignore[method-assign, assignment]
        self._session.children = children  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        self._session.get = self._get  # type: ignore[method-assign]
        self._session.children = self._children  # type: ignore[method-assign]


class TestBrokerConfigs:
    def test_of_all_and_of_one_are_told(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await cluster.store.open_session()
                await put(session, "/config/brokers/<default>", config_of(log_retention_ms="7"))
                await put(session, "/config/brokers/0", config_of(log_retention_ms="8"))
                fake = cluster.channel.broker(0)
                assert fake.broker_configs == {
                    "": {"log.retention.ms": "7"},
                    "0": {"log.retention.ms": "8"},
                }
                await put(session, "/config/brokers/<default>", config_of(log_retention_ms="9"))
                await session.delete("/config/brokers/0")
                await settled()
                assert fake.broker_configs == {"": {"log.retention.ms": "9"}}
                altered = await alter(controller, ConfigScope.BROKER, "0", log_retention_ms="3")
                assert altered is ErrorCode.NONE

        run_scenario(scenario)

    @pytest.mark.parametrize(
        ("name", "data", "why"),
        [
            ("0", config_of(log_retention_ms="long"), "long"),
            ("0", config_of(log_dirs="/other"), "read-only"),
            ("0", b"[1]", "not an object"),
            ("zero", config_of(log_retention_ms="7"), "neither a broker id"),
        ],
    )
    def test_that_are_bad_are_reported_and_ignored(self, name: str, data: bytes, why: str) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await cluster.store.open_session()
                path = f"/config/brokers/{name}"
                await put(session, path, data)
                assert cluster.channel.broker(0).broker_configs == {}
                [line] = warnings(cluster, path)
                assert why in line
                altered = await alter(controller, ConfigScope.BROKER, name, log_retention_ms="3")
                assert altered is (
                    ErrorCode.NONE if name.isdecimal() else ErrorCode.INVALID_REQUEST
                )

        run_scenario(scenario)

    def test_may_be_stored_below_a_parent_that_was_deleted(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled():
                session = await cluster.store.open_session()
                await session.delete("/config/brokers")
                await settled()
                await session.create("/config/brokers")
                await put(session, "/config/brokers/0", config_of(log_retention_ms="8"))
                stored_now = cluster.channel.broker(0).broker_configs
                assert stored_now == {"0": {"log.retention.ms": "8"}}

        run_scenario(scenario)


def test_configs_of_groups_are_adopted() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            session = await cluster.store.open_session()
            path = "/config/groups/billing"
            await put(session, path, config_of(consumer_session_timeout_ms="50000"))
            assert state_of(controller).group_configs == {
                "billing": {"consumer.session.timeout.ms": "50000"}
            }
            await put(session, path, config_of(consumer_session_timeout_ms="-1"))
            assert len(warnings(cluster, path)) == 1
            await session.delete(path)
            await settled()
            assert state_of(controller).group_configs == {}

    run_scenario(scenario)


class TestClientConfigs:
    def test_are_kept_and_no_credential_is_logged(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await cluster.store.open_session()
            async with cluster.controlled() as controller:
                rate = json.dumps({"config": {"producer_byte_rate": "1024"}}).encode()
                login = json.dumps({"config": {"SCRAM-SHA-256": SCRAM}}).encode()
                await put(session, "/config/users/al%2Fice", login)
                await put(session, "/config/users/al%2Fice/clients", b"")
                await put(session, "/config/users/al%2Fice/clients/<default>", rate)
                await put(session, "/config/clients/app", rate)
                connections = {"connection_creation_rate": "10"}
                ips = json.dumps({"config": connections}).encode()
                await put(session, "/config/ips/10.0.0.1", ips)
                quota = {"producer_byte_rate": "1024"}
                assert state_of(controller).client_configs == {
                    ClientEntity("al/ice", None): {"SCRAM-SHA-256": SCRAM},
                    ClientEntity("al/ice", ""): quota,
                    ClientEntity(None, "app"): quota,
                    ClientEntity(ip="10.0.0.1"): connections,
                }
                assert warnings(cluster, "SCRAM") == []
                assert warnings(cluster, "producer_byte_rate") == []  # nothing is wrong with it
                assert warnings(cluster, "stored_key") == []
            cluster.reports.clear()
            async with cluster.controlled() as controller:
                assert len(state_of(controller).client_configs) == 4
                await session.delete("/config/clients/app")
                await settled()
                assert ClientEntity(None, "app") not in state_of(controller).client_configs

        run_scenario(scenario)

    @pytest.mark.parametrize(
        "data", [b"stored_key", b'{"config":{"SCRAM-SHA-256":"stored_key=c3RvcmVk"}}']
    )
    def test_that_are_bad_are_reported_without_their_values(self, data: bytes) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await cluster.store.open_session()
            async with cluster.controlled() as controller:
                await put(session, "/config/users/alice", data)
                assert state_of(controller).client_configs == {}
                [line] = warnings(cluster, "/config/users/alice")
                assert "c3RvcmVk" not in line

        run_scenario(scenario)

    @pytest.mark.parametrize(
        ("name", "value", "is_valid"),
        [
            ("producer_byte_rate", "1048576.0", True),
            ("request_percentage", "0", False),
            ("consumer_byte_rate", "nan", False),
            ("consumer_byte_rate", "inf", False),
            ("SCRAM-SHA-512", SCRAM, True),
            ("SCRAM-SHA-512", SCRAM.replace("4096", "many"), False),
            ("bytes_rate", "1", False),
        ],
    )
    def test_are_checked(self, name: str, value: str, is_valid: bool) -> None:
        problem = find_entity_problem(ClientEntity("alice", None), {name: value})
        assert (problem is None) == is_valid
        of_address = ClientEntity(ip="10.0.0.1")
        assert "no setting" in (find_entity_problem(of_address, {name: value}) or "")
        if name.startswith("SCRAM"):
            of_client = ClientEntity("alice", "app")
            assert "no setting" in (find_entity_problem(of_client, {name: value}) or "")


class TestNotifications:
    @pytest.mark.parametrize(
        ("data", "path"),
        [
            ({"version": 1, "entity_type": "topics", "entity_name": "t"}, "/config/topics/t"),
            (
                {"version": 2, "entity_path": "users/u/clients/c"},
                "/config/users/u/clients/c",
            ),
            ({"version": 2, "entity_path": "brokers/<default>"}, "/config/brokers/<default>"),
        ],
    )
    def test_name_a_znode_in_both_versions(self, data: object, path: str) -> None:
        assert decode_config_change("/config/changes/c", json.dumps(data).encode()) == path

    @pytest.mark.parametrize("data", [b"{}", b"1", b'{"version":3,"entity_path":"topics/t"}'])
    def test_of_other_formats_are_damaged(self, data: bytes) -> None:
        with pytest.raises(DamagedZnode):
            decode_config_change("/config/changes/c", data)

    def test_change_nothing_themselves_and_go_after_a_while(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t")
                session = await cluster.store.open_session()
                good = json.dumps({"version": 2, "entity_path": "topics/t"}).encode()
                for data in (good, b"nonsense"):
                    await session.create("/config/changes/config_change_", data, sequential=True)
                await settled()
                assert broker_view(cluster) == {}
                assert len(warnings(cluster, "/config/changes/config_change_0000000001")) == 1
                assert len(await session.children("/config/changes")) == 2

        run_scenario(scenario)

    def test_are_deleted_once_they_are_old(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                active = controller._active
                assert active is not None
                session = await cluster.store.open_session()
                for name in ("old", "new"):
                    await session.create(f"/config/changes/{name}", b"{}")
                values = {
                    f"/config/changes/{name}": SimpleNamespace(stat=SimpleNamespace(ctime_ms=ms))
                    for name, ms in (("old", 0), ("new", NOTIFICATION_TTL_MS + 1))
                }
                await active.config_watches._delete_old(values)  # type: ignore[arg-type]
                assert await session.children("/config/changes") == ("new",)

        run_scenario(scenario)


class TestElection:
    def test_applies_what_was_changed_while_no_controller_lived(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await cluster.store.open_session()
            async with cluster.controlled() as controller:
                await make(controller, "t", "u", retention_ms="5")
            await put(session, "/config/topics/t", config_of(retention_ms="6"))
            await put(session, "/config/brokers/<default>", config_of(log_retention_ms="7"))
            async with cluster.controlled():
                assert broker_view(cluster) == {"retention.ms": "6"}
                assert cluster.channel.broker(0).broker_configs == {"": {"log.retention.ms": "7"}}
                await put(session, "/config/topics/u", config_of(retention_ms="8"))
                assert broker_view(cluster, "u") == {"retention.ms": "8"}

        run_scenario(scenario)

    @pytest.mark.parametrize("data", [b"nonsense", config_of(retention_ms="long")])
    def test_keeps_what_the_broker_knows_where_the_znode_is_bad(self, data: bytes) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await cluster.store.open_session()
            async with cluster.controlled() as controller:
                await make(controller, "t", retention_ms="5")
                await alter(controller, ConfigScope.BROKER, "", log_retention_ms="7")
                last_known = state_of(controller)
            await put(session, "/config/topics/t", data)
            await put(session, "/config/brokers/<default>", config_of(log_retention_ms="never"))
            async with cluster.controlled(last_known=last_known) as controller:
                assert broker_view(cluster) == {"retention.ms": "5"}
                assert state_of(controller).broker_configs == {"": {"log.retention.ms": "7"}}
                assert len(warnings(cluster, "/config/topics/t")) == 1
                assert len(warnings(cluster, "/config/brokers/<default>")) == 1
                await put(session, "/config/topics/t", config_of(retention_ms="6"))
                assert broker_view(cluster) == {"retention.ms": "6"}

        run_scenario(scenario)

    def test_deletes_nothing_of_a_topic_whose_configs_nobody_knows(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await cluster.store.open_session()
            async with cluster.controlled() as controller:
                await make(controller, "t", retention_ms="5")
            await put(session, "/config/topics/t", b"nonsense")
            await put(session, "/config/brokers/0", b"nonsense")
            async with cluster.controlled() as controller:
                assert broker_view(cluster) == {"cleanup.policy": ""}
                [line] = warnings(cluster, "/config/topics/t")
                assert "nothing of topic t is deleted by age or size" in line
                assert len(warnings(cluster, "/config/brokers/0")) == 1
                altered = await alter(controller, ConfigScope.BROKER, "0", log_retention_ms="3")
                assert altered is ErrorCode.NONE

        run_scenario(scenario)
