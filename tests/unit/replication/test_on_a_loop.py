"""ReplicaManager as a broker runs it: an event loop, real files, flushes on threads."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tests.unit.replication.harness import some_batch

from penstock.config.effective_config import resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.logs.event_logger import NO_LOGGER
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine

ME = BrokerId(1)
WALL_MS = 1_700_000_000_000
NAMES = [TopicPartition("orders", number) for number in range(8)]
ORDER = LeaderAndIsrRequest(
    controller_id=ME,
    controller_epoch=ControllerEpoch(1),
    broker_epoch=BrokerEpoch(1),
    partitions=tuple(
        LeaderAndIsrPartition(
            name,
            TopicId(UUID(int=1)),
            PartitionState(ME, LeaderEpoch(0), (ME,), (ME,)),
            is_new=True,
        )
        for name in NAMES
    ),
)


def test_synchronous_writes_of_many_clients_are_durable_when_acknowledged(
    tmp_path: Path,
) -> None:
    settings = resolve_broker(
        RawConfig.from_mapping({"log.flush.interval.messages": "1"}, where="test")
    )

    async def scenario(timers: LoopTimers, background: FlushThreads) -> None:
        loop = asyncio.get_running_loop()

        def post(work: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(work)

        engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(tmp_path),)),
            config_of=lambda topic: LogConfig(),
            background=background,
            post=post,
        )
        engine.recover(lambda *, done, total: None, WALL_MS)
        replicas = ReplicaManager(
            broker_id=ME,
            engine=engine,
            metadata=MetadataCache(),
            effective_config=lambda: settings,
            timers=timers,
            wall_ms=lambda: WALL_MS,
            logger=NO_LOGGER,
        )
        assert set(replicas.become_leader_or_follower(ORDER).values()) == {ErrorCode.NONE}
        await asyncio.gather(*(write_in_turn(replicas, client) for client in range(8)))
        assert [replicas.get(name).log.durable_offset for name in NAMES] == [40] * 8
        assert replicas.statistics().produces.expired == 0
        timers.stop()
        engine.close()

    async def main() -> None:
        with FlushThreads(workers=4) as background:
            async with asyncio.TaskGroup() as group:
                timers = LoopTimers()
                group.create_task(timers.run(), name="timers")
                group.create_task(scenario(timers, background), name="scenario")

    asyncio.run(main())


async def write_in_turn(replicas: ReplicaManager, client: int) -> None:
    for turn in range(5):
        answered: asyncio.Future[list[PartitionAppended]] = asyncio.Future()
        replicas.append(
            [(name, memoryview(some_batch())) for name in NAMES],
            acks=-1 if (client + turn) % 2 else 1,
            timeout_ms=60_000,
            done=answered.set_result,
        )
        for name, answer in zip(NAMES, await answered, strict=True):
            assert answer.code is ErrorCode.NONE
            assert replicas.get(name).log.durable_offset > answer.base_offset
