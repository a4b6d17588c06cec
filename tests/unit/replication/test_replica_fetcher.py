"""A follower and its leader over real sockets: records, offsets, leader changes, lost
connections."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import NOW_MS, ApiHarness, batch, topic_id_of
from tests.unit.replication.harness import ME as LEADER
from tests.unit.replication.harness import OTHER as FOLLOWER

from penstock.client.address import Address
from penstock.client.data_calls import FetchFrom
from penstock.config.effective_config import resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.logs.event_logger import NO_LOGGER, message_logger
from penstock.logs.levels import INFO
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
)
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.network.limits import NetworkLimits
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_fetcher import (
    FetcherDependencies,
    ReplicaFetcherManager,
    choose_part,
)
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.segmented_engine import SegmentedEngine

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SETTINGS = resolve_broker(
    RawConfig.from_mapping(
        {"replica.fetch.backoff.ms": "20", "replica.fetch.wait.max.ms": "20000"}, where="test"
    )
)
TIMEOUT_S = 180


def test_very_many_partitions_take_turns() -> None:
    wanted = [FetchFrom(TopicPartition("t", number), Offset(0)) for number in range(25)]
    turns = [choose_part(wanted, turn, 10) for turn in range(4)]
    assert [parts for _, parts in turns] == [3, 3, 3, 3]
    named = [[fetch.tp.partition for fetch in part] for part, _ in turns]
    assert named == [[*range(10)], [*range(10, 20)], [*range(20, 25)], [*range(10)]]
    assert choose_part(wanted, 7) == (wanted, 1), "fewer than one request may name"


class ReplicationPair:
    """A leader behind a real server, and a follower that fetches from it."""

    def __init__(self, folder: Path, timers: LoopTimers) -> None:
        self.leader_harness = ApiHarness(folder / "leader")
        let_brokers_in(self.leader_harness)
        self.timers = timers
        self.reports: list[str] = []
        self.servers: list[Server] = []
        self.address: Address | None = None
        # Called when a fetcher looks up its leader.
        self.on_connect: Callable[[], None] = lambda: None
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(folder / "follower"),)), config_of=lambda topic: LogConfig()
        )
        self.engine.recover(lambda *, done, total: None, 0)
        self.replicas = ReplicaManager(
            broker_id=FOLLOWER,
            engine=self.engine,
            metadata=MetadataCache(),
            effective_config=lambda: SETTINGS,
            timers=timers,
            wall_ms=lambda: NOW_MS,
            logger=message_logger(self.reports.append, INFO),
        )

    def make_server(self) -> Server:
        server = Server(
            on_request=self.leader_harness.dispatcher.on_request,
            timers=self.timers,
            limits=NetworkLimits(),
            logger=NO_LOGGER,
        )
        self.address = Address(*server.bind("PLAINTEXT", "127.0.0.1", 0))
        server.start()
        self.servers.append(server)
        return server

    def fetchers(self) -> ReplicaFetcherManager:
        return ReplicaFetcherManager(
            FetcherDependencies(
                follower_state=self.replicas.follower_state,
                broker_id=FOLLOWER,
                broker_epoch=lambda: BrokerEpoch(1),
                find_address=self._find_address,
                topic_id_of=lambda partition: self.replicas.get(partition).topic_id,
                config=self.replicas.follower_config,
                now_ms=self.timers.now_ms,
                logger=message_logger(self.reports.append, INFO),
            )
        )

    def _find_address(self, _: BrokerId) -> Address | None:
        self.on_connect()
        return self.address

    def delete(self, name: TopicPartition) -> None:
        self.replicas.stop_replicas(
            StopReplicaRequest(
                controller_id=LEADER,
                controller_epoch=ControllerEpoch(1),
                broker_epoch=BrokerEpoch(1),
                partitions=(name,),
                delete=True,
            )
        )

    def follow(self, *names: TopicPartition, epoch: int = 0, leader: BrokerId = LEADER) -> None:
        state = PartitionState(leader, LeaderEpoch(epoch), (LEADER, FOLLOWER), (LEADER,), epoch)
        orders = [
            LeaderAndIsrPartition(name, topic_id_of(name.topic), state, True) for name in names
        ]
        self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=LEADER,
                controller_epoch=ControllerEpoch(1),
                broker_epoch=BrokerEpoch(1),
                partitions=tuple(orders),
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 (of several parts, none of which tells)
            await asyncio.sleep(0.002)

    def end(self, name: TopicPartition = P0) -> int:
        return self.replicas.get(name).log_end_offset


Scenario = Callable[[ReplicationPair], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario) -> ReplicationPair:
    (folder / "leader").mkdir()
    (folder / "follower").mkdir()

    async def main() -> ReplicationPair:
        timers = LoopTimers()
        pair = ReplicationPair(folder, timers)
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(timers.run())
            fetching = tasks.create_task(pair.fetchers().run())
            try:
                await scenario(pair)
            finally:
                fetching.cancel()
                for server in pair.servers:
                    await server.close(0)
                timers.stop()
        return pair

    pair = asyncio.run(main())
    pair.engine.abandon()
    pair.leader_harness.close()
    return pair


def test_appended_records_reach_the_follower_and_are_committed_by_its_next_fetch(
    tmp_path: Path,
) -> None:
    async def scenario(pair: ReplicationPair) -> None:
        pair.make_server()
        pair.leader_harness.make_topic("orders", 2, replicas=(LEADER, FOLLOWER))
        pair.follow(P0, P1)
        for number in range(20):
            pair.leader_harness.fill("orders", batch(b"a", b"b"), partition=number % 2)
        await pair.until(lambda: pair.end(P0) == pair.end(P1) == 20)
        await pair.until(lambda: pair.leader_harness.replicas.get(P1).high_watermark == 20)
        pair.leader_harness.fill("orders", batch(b"c"))
        await pair.until(lambda: pair.replicas.get(P0).high_watermark >= 20)

    assert run_scenario(tmp_path, scenario).reports == []


def test_a_new_partition_does_not_wait_for_a_delayed_request(
    tmp_path: Path,
) -> None:
    async def scenario(pair: ReplicationPair) -> None:
        pair.make_server()
        pair.leader_harness.make_topic("orders", 2, replicas=(LEADER, FOLLOWER))
        pair.follow(P0)
        await pair.until(
            lambda: pair.leader_harness.replicas.fetch_purgatory.statistics().delayed == 1
        )
        pair.leader_harness.fill("orders", batch(b"a"), partition=1)
        pair.follow(P1)
        await pair.until(lambda: pair.end(P1) == 1)  # which the other request would delay for long

    assert run_scenario(tmp_path, scenario).reports == []


def test_deleting_a_partition_during_a_fetch_does_not_end_the_fetcher(
    tmp_path: Path,
) -> None:
    deleted: list[TopicPartition] = []

    async def scenario(pair: ReplicationPair) -> None:
        def delete_once() -> None:
            if not deleted:
                deleted.append(P0)
                pair.delete(P0)

        pair.make_server()
        pair.leader_harness.make_topic("orders", 2, replicas=(LEADER, FOLLOWER))
        pair.leader_harness.fill("orders", batch(b"a"), partition=1)
        pair.on_connect = delete_once
        pair.follow(P0)
        await pair.until(lambda: bool(deleted))
        pair.follow(P1)
        await pair.until(lambda: pair.end(P1) == 1)

    assert run_scenario(tmp_path, scenario).reports == []


def test_an_unreachable_leader_is_retried_and_reported_once(tmp_path: Path) -> None:
    async def scenario(pair: ReplicationPair) -> None:
        pair.follow(P0)
        await pair.until(lambda: bool(pair.reports))
        await asyncio.sleep(0.1)
        pair.leader_harness.make_topic("orders", replicas=(LEADER, FOLLOWER))
        pair.leader_harness.fill("orders", batch(b"a"))
        first = pair.make_server()
        await pair.until(lambda: pair.end() == 1)
        await first.close(0)
        pair.leader_harness.fill("orders", batch(b"b"))
        pair.make_server()
        await pair.until(lambda: pair.end() == 2)

    reports = run_scenario(tmp_path, scenario).reports
    assert "is not registered" in reports[0]
    assert len(reports) <= 2


def test_a_diverging_follower_truncates_and_continues(tmp_path: Path) -> None:
    async def scenario(pair: ReplicationPair) -> None:
        pair.make_server()
        both = (LEADER, FOLLOWER)
        pair.leader_harness.make_topic("orders", replicas=both)
        pair.leader_harness.fill("orders", batch(b"a"))
        pair.follow(P0)
        await pair.until(lambda: pair.end() == 1)
        pair.follow(P0, epoch=1, leader=FOLLOWER)  # elected for a moment, unknown to others
        pair.replicas.append(
            [(P0, memoryview(batch(b"x"))), (P0, memoryview(batch(b"y")))],
            acks=1,
            timeout_ms=100,
            done=lambda answers: None,
        )
        assert pair.end() == 3
        pair.leader_harness.make_topic("orders", replicas=both, epoch=2)
        pair.leader_harness.fill("orders", batch(b"b"))
        pair.follow(P0, epoch=2)
        await pair.until(lambda: pair.leader_harness.replicas.get(P0).high_watermark == 2)
        assert pair.end() == 2
        assert pair.replicas.get(P0).log.latest_epoch == 2

    (report,) = run_scenario(tmp_path, scenario).reports
    assert "is truncated from 3 to 1" in report
