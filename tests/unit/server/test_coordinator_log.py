"""The coordinator log on real replicas: appends, reads and the creation of its topic."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.replication.harness import ME, OTHER, THIRD, ReplicationHarness, some_batch
from tests.unit.server.contexts import broker_context

from penstock.config.log_config import LogConfig
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    CreatableTopic,
    NewPartitions,
)
from penstock.coordinators.runtime.dependencies import NOT_WRITTEN, Append, LogEnds
from penstock.model.cluster import (
    OFFSETS_TOPIC,
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.server.coordinator_log import ReplicatedCoordinatorLog

NONE = ErrorCode.NONE
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


class Administrator:
    """Creates the offsets topic in the harness's metadata, or returns an error."""

    def __init__(self, harness: ReplicationHarness, error: ApiError | None = None) -> None:
        self.harness = harness
        self.error = error
        self.created: list[CreatableTopic] = []

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        await asyncio.sleep(0)
        self.created += topics
        if self.error is not None:
            return [self.error]
        self.harness.update_topic(OFFSETS_TOPIC, 5)
        created = self.harness.cluster.find_topic(OFFSETS_TOPIC)
        assert created is not None
        return [created]

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        raise AssertionError

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        raise AssertionError

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        raise AssertionError


def log_of(
    harness: ReplicationHarness, administrator: Administrator | None = None
) -> ReplicatedCoordinatorLog:
    return ReplicatedCoordinatorLog(
        OFFSETS_TOPIC,
        replication_factor="offsets.topic.replication.factor",
        administration=administrator or Administrator(harness),
        context=broker_context(harness),
        pread=harness.disk.pread,
    )


def unexpected(code: ErrorCode) -> None:
    pytest.fail(f"completed late: {code}")


def append(
    log: ReplicatedCoordinatorLog, *sizes: int, codes: list[ErrorCode] | None = None
) -> Append:
    done = unexpected if codes is None else codes.append
    return log.append(0, [some_batch(size) for size in sizes], timeout_ms=1000, done=done)


def test_a_single_replica_commits_at_once() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS)
    log = log_of(harness)
    assert append(log, 1) == Append(0, NONE)
    assert append(log, 2, 3) == Append(1, NONE)  # two batches in one write
    assert log.ends(0) == LogEnds(0, 6, 6)


def test_an_append_waits_for_the_isr() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER), in_sync=(ME, OTHER))
    log, codes = log_of(harness), list[ErrorCode]()
    assert append(log, 1, 1, codes=codes) == Append(0, None)
    harness.follower_has(1, OFFSETS)
    assert codes == []
    harness.follower_has(2, OFFSETS)
    assert codes == [NONE]


def test_an_append_times_out() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER), in_sync=(ME, OTHER))
    log, codes = log_of(harness), list[ErrorCode]()
    append(log, 1, codes=codes)
    harness.clock.advance_ms(1001)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    assert log.ends(0) == LogEnds(0, 0, 1)


def test_a_rejected_append_is_not_written() -> None:
    harness = ReplicationHarness(broker={"min.insync.replicas": "2"})
    log = log_of(harness)
    assert append(log, 1) == Append(NOT_WRITTEN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER), in_sync=(ME,))
    assert append(log, 1) == Append(NOT_WRITTEN, ErrorCode.NOT_ENOUGH_REPLICAS)
    harness.leader_and_isr(OFFSETS, leader=OTHER, epoch=1, replicas=(ME, OTHER))
    assert append(log, 1) == Append(NOT_WRITTEN, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert log.ends(0).end == 0


def test_every_leadership_has_its_own_identity() -> None:
    harness = ReplicationHarness()
    log = log_of(harness)
    assert log.find_leadership(0) is None
    assert log.ends(0) == LogEnds(0, 0, 0)
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER))
    first = log.find_leadership(0)
    assert first is not None
    harness.leader_and_isr(OFFSETS, epoch=1, replicas=(ME, OTHER))
    assert log.find_leadership(0) is first  # a later epoch of the same leadership
    harness.leader_and_isr(OFFSETS, leader=OTHER, epoch=2, replicas=(ME, OTHER))
    assert log.find_leadership(0) is None
    harness.leader_and_isr(OFFSETS, epoch=3, replicas=(ME, OTHER))
    assert log.find_leadership(0) not in (None, first)


def test_the_whole_log_is_read_in_chunks_even_above_the_high_watermark() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER), in_sync=(ME, OTHER))
    log = log_of(harness)
    for _ in range(4):
        append(log, 2, codes=[])

    async def read(max_bytes: int) -> list[int]:
        base_offsets: list[int] = []
        position = 0
        while position < log.ends(0).end:
            chunk = await log.read(0, position, max_bytes)
            base_offsets += [header.base_offset for _, header in iter_headers(chunk.batches)]
            assert chunk.end_offset > position
            position = chunk.end_offset
        return base_offsets

    for max_bytes in (1, 200, 1_000_000):
        assert asyncio.run(read(max_bytes)) == [0, 2, 4, 6]


def test_a_read_error_is_a_refusal_that_does_not_end_the_broker() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS)
    log = log_of(harness)
    append(log, 1)

    def broken(descriptor: int, length: int, position: int) -> bytes:
        raise OSError("the disk has gone")

    log = ReplicatedCoordinatorLog(
        OFFSETS_TOPIC,
        replication_factor="offsets.topic.replication.factor",
        administration=Administrator(harness),
        context=broker_context(harness),
        pread=broken,
    )
    with pytest.raises(Refusal, match="the disk has gone"):
        asyncio.run(log.read(0, 0, 100))
    with pytest.raises(Refusal):
        asyncio.run(log.read(0, 99, 100))


def test_when_committed_completes_with_success_or_an_error() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(OFFSETS, replicas=(ME, OTHER), in_sync=(ME, OTHER))
    log, codes = log_of(harness), list[ErrorCode]()
    append(log, 1, codes=[])

    def wait(offset: int) -> None:
        log.when_committed(0, offset, timeout_ms=1000, done=codes.append)

    wait(0)
    assert codes == [NONE]
    wait(1)
    assert codes == [NONE]
    harness.follower_has(1, OFFSETS)
    assert codes == [NONE, NONE]
    wait(2)
    harness.clock.advance_ms(1001)
    assert codes[2:] == [ErrorCode.REQUEST_TIMED_OUT]
    wait(2)
    harness.leader_and_isr(OFFSETS, leader=OTHER, epoch=1, replicas=(ME, OTHER))
    assert codes[3:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    wait(2)
    assert codes[4:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_the_batch_limit_is_the_topics_max_message_bytes() -> None:
    harness = ReplicationHarness(broker={"message.max.bytes": "5000"})
    harness.leader_and_isr(OFFSETS)
    assert log_of(harness).max_batch_bytes(0) == 5000


def test_concurrent_requests_create_the_topic_once() -> None:
    harness = ReplicationHarness()
    administrator = Administrator(harness)
    log = log_of(harness, administrator)
    assert log.partition_count() is None

    async def ensure() -> list[ErrorCode]:
        return await asyncio.gather(*(log.ensure_topic() for _ in range(5)))

    assert asyncio.run(ensure()) == [NONE] * 5
    assert log.partition_count() == 5
    assert [topic.name for topic in administrator.created] == [OFFSETS_TOPIC]


def test_a_failed_topic_creation_is_reported_and_retried() -> None:
    harness = ReplicationHarness()
    administrator = Administrator(
        harness, ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few")
    )
    log = log_of(harness, administrator)
    assert asyncio.run(log.ensure_topic()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "too few" in harness.reports[0]
    administrator.error = None
    assert asyncio.run(log.ensure_topic()) is NONE


@pytest.mark.parametrize(
    ("overrides", "brokers", "factor"),
    [
        ({}, (ME,), 1),  # the default is limited to the number of brokers
        ({}, (ME, OTHER), 2),
        ({}, (), 1),
        ({"offsets.topic.replication.factor": "3"}, (ME,), 3),  # configured: not reduced
        ({"offsets.topic.replication.factor": "1"}, (ME, OTHER, THIRD), 1),
    ],
)
def test_the_default_replication_factor_is_limited_to_the_number_of_brokers(
    overrides: dict[str, str], brokers: tuple[BrokerId, ...], factor: int
) -> None:
    harness = ReplicationHarness(broker=overrides)
    harness.cluster.apply(
        UpdateMetadataRequest(
            controller_id=ME,
            controller_epoch=ControllerEpoch(1),
            is_full=True,
            brokers=tuple(
                BrokerNode(id=broker, epoch=BrokerEpoch(0), endpoints=()) for broker in brokers
            ),
        )
    )
    administrator = Administrator(harness)
    asyncio.run(log_of(harness, administrator).ensure_topic())
    assert [topic.replication_factor for topic in administrator.created] == [factor]
