"""Loading state: what a crash, an older Kafka or a tool left behind is completed or refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.controller.cluster import Cluster, code_of, run_scenario, settled

from penstock.controller.controller import Controller
from penstock.controller.interface import CreatableTopic
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.state_loader import find_topic_znodes
from penstock.controller.znodes import PERSISTENT_ZNODES, format_uuid
from penstock.metadata_store.errors import DamagedZnode
from penstock.metadata_store.interface import Session
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode

WAIT_MS = 30_000


def run_with_znodes(
    prepare: Callable[[Session], Awaitable[None]],
    check: Callable[[Cluster, Controller], Awaitable[None]],
    *brokers: int,
) -> None:
    """Run a controller over znodes that another client wrote, and check the result."""

    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        await ensure_znodes(session, PERSISTENT_ZNODES)
        await prepare(session)
        async with cluster.controlled() as controller:
            await settled()
            fresh = await cluster.reread()
            assert fresh.writes == ()
            await check(cluster, controller)

    run_scenario(scenario, *brokers)


def node_of(**partitions: list[int]) -> bytes:
    numbered = {name[1:]: replicas for name, replicas in partitions.items()}
    return json.dumps({"version": 1, "partitions": numbered}).encode()


def test_a_topic_with_only_its_znode_is_completed() -> None:
    """Kafka's own tools write no other znode, and older versions write no topic id."""

    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[0, 1], p1=[1, 0]))

    async def check(cluster: Cluster, controller: Controller) -> None:
        fake = cluster.channel.broker(0)
        made = fake.topics["t"]
        assert [partition.leader for partition in made.partitions] == [0, 1]
        assert made.partitions[0].in_sync == (0, 1)
        data = cluster.store.tree.get("/brokers/topics/t").data
        assert json.loads(data)["topic_id"] == format_uuid(made.topic_id)
        assert len(fake.replicas) == 2

    run_with_znodes(prepare, check, 0, 1)


def test_a_partition_znode_without_state_gets_one() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[0], p1=[0]))
        await session.create("/brokers/topics/t/partitions")
        await session.create("/brokers/topics/t/partitions/0")

    async def check(cluster: Cluster, controller: Controller) -> None:
        assert [p.leader for p in cluster.channel.broker().topics["t"].partitions] == [0, 0]

    run_with_znodes(prepare, check)


def test_a_new_partition_without_live_replicas_waits_for_any() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[7, 8]))

    async def check(cluster: Cluster, controller: Controller) -> None:
        [before] = cluster.channel.broker().topics["t"].partitions
        assert (before.leader, before.in_sync) == (NO_BROKER, (7, 8))
        await cluster.join(8)
        await settled()
        [after] = cluster.channel.broker().topics["t"].partitions
        assert (after.leader, after.in_sync) == (8, (8,))

    run_with_znodes(prepare, check)


def test_configs_without_a_topic_are_deleted() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"1"}}')
        await session.create("/admin/delete_topics/t")

    async def check(cluster: Cluster, controller: Controller) -> None:
        [answer] = await controller.create_topics(
            [CreatableTopic(name="t")], validate_only=False, timeout_ms=WAIT_MS
        )
        assert code_of(answer) is ErrorCode.NONE
        assert cluster.channel.broker().topics["t"].configs == {}

    run_with_znodes(prepare, check)


def test_topic_and_broker_configs_are_read_back() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[0]))
        await session.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"1"}}')
        for name in ("<default>", "0"):
            data = json.dumps({"version": 1, "config": {"log.retention.ms": f"1{name[:1]}"}})
            await session.create(f"/config/brokers/{name}", data.encode().replace(b"<", b"2"))

    async def check(cluster: Cluster, controller: Controller) -> None:
        fake = cluster.channel.broker()
        assert fake.topics["t"].configs == {"retention.ms": "1"}
        assert fake.broker_configs == {
            "": {"log.retention.ms": "12"},
            "0": {"log.retention.ms": "10"},
        }

    run_with_znodes(prepare, check)


def test_invalid_stored_broker_configs_are_reported_and_ignored() -> None:
    async def prepare(session: Session) -> None:
        data = b'{"version":1,"config":{"log.retention.ms":"soon"}}'
        await session.create("/config/brokers/<default>", data)

    async def check(cluster: Cluster, controller: Controller) -> None:
        [report] = cluster.reports
        assert "'soon' is not valid" in report
        assert "alter or delete them" in report

    run_with_znodes(prepare, check)


def test_a_topic_with_invalid_configs_gets_no_unclean_leader() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[7, 0]))
        await session.create("/brokers/topics/t/partitions")
        await session.create("/brokers/topics/t/partitions/0")
        await session.create(
            "/brokers/topics/t/partitions/0/state",
            b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":3,"isr":[7]}',
        )
        configs = '{"unclean.leader.election.enable":"true","retention.ms":"soon"}'
        await session.create("/config/topics/t", f'{{"version":1,"config":{configs}}}'.encode())

    async def check(cluster: Cluster, controller: Controller) -> None:
        [partition] = cluster.channel.broker().topics["t"].partitions
        assert (partition.leader, partition.leader_epoch) == (NO_BROKER, 4)
        report, leaders = cluster.reports
        assert "no unclean leader election for topic t" in report
        assert leaders == "1 partitions changed their leader"

    run_with_znodes(prepare, check)


def test_an_interrupted_deletion_is_completed() -> None:
    async def prepare(session: Session) -> None:
        await session.create("/brokers/topics/t", node_of(p0=[0], p1=[0], p2=[0]))
        await session.create("/brokers/topics/t/partitions")
        await session.create("/brokers/topics/t/partitions/1")
        await session.create("/brokers/topics/t/partitions/somebody's")
        await session.create("/admin/delete_topics/t")

    async def check(cluster: Cluster, controller: Controller) -> None:
        assert cluster.channel.broker().topics == {}
        tree = cluster.store.tree
        assert tree.find("/brokers/topics/t") is None
        assert tree.find("/admin/delete_topics/t") is None

    run_with_znodes(prepare, check)


def test_a_topic_marked_for_deletion_is_not_completed() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        await ensure_znodes(session, PERSISTENT_ZNODES)
        await session.create("/brokers/topics/t", node_of(p0=[0], p1=[0]))
        await session.create("/admin/delete_topics/t")
        reread = await cluster.reread()
        assert reread.writes == ()
        assert reread.state.deleting == {"t": {0}}

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/t", b"nonsense"),
        ("/brokers/topics/a b", b'{"partitions":{"0":[0]}}'),
    ],
)
def test_a_damaged_znode_stops_the_failover_and_is_named(path: str, data: bytes) -> None:
    """Only if it was in use: a znode that never was a topic is left alone."""

    async def prepare(session: Session) -> None:
        await session.create(path, data)
        await session.create(f"{path}/partitions")

    async def check(cluster: Cluster, controller: Controller) -> None:
        raise AssertionError

    with pytest.raises(ExceptionGroup) as raised:
        run_with_znodes(prepare, check)
    [error] = raised.value.exceptions
    assert isinstance(error, DamagedZnode)
    assert error.path == path


def test_topic_znodes_are_found_parents_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = cluster.sessions[0]
        await ensure_znodes(session, PERSISTENT_ZNODES)
        async with cluster.controlled() as controller:
            await controller.create_topics(
                [CreatableTopic(name="t", partitions=2)], validate_only=False, timeout_ms=WAIT_MS
            )
            paths = await find_topic_znodes(session, "t")
            assert paths[0] == "/brokers/topics/t"
            assert all(
                paths.index(path.rpartition("/")[0]) < index
                for index, path in enumerate(paths)
                if path.count("/") > 3
            )
            assert len(paths) == 1 + 1 + 2 + 2 + 1
            assert await find_topic_znodes(session, "none") == []

    run_scenario(scenario)
