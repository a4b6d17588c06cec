"""Groups and offsets loaded from the log, whatever its state."""

import asyncio
from collections.abc import Callable

from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    START_MS,
    T0,
    T1,
    U0,
    GroupCoordinatorHarness,
    TableLog,
    commit_of,
    run_scenario,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import (
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetValue,
    encode_record,
)
from penstock.coordinators.group.requests import FetchOffsets, Heartbeat
from penstock.coordinators.runtime.dependencies import LogChunk, LogEnds
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch

FETCH = FetchOffsets(group=GROUP, member=None, member_epoch=-1, partitions=(T0,))


def offset_record(offset: int, partition: TopicPartition = T0) -> tuple[bytes, bytes]:
    key = OffsetKey(GROUP, partition.topic, partition.partition)
    encoded = encode_record(GroupRecord(key, OffsetValue(offset, -1, "", START_MS)))
    assert encoded[1] is not None
    return encoded[0], encoded[1]


def log_written_by(write: Callable[[TableLog], object]) -> TableLog:
    log = TableLog()
    log.tables[0].now_ms = START_MS
    write(log)
    return log


def test_a_restarted_coordinator_loads_everything_that_was_committed() -> None:
    async def first(harness: GroupCoordinatorHarness) -> None:
        for number in range(50):
            await harness.commit(commit_of(T0, number), commit_of(U0, number, "note"))
        await harness.settle_member("members", "orders")

    async def second(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 49, U0: 49}
        assert (await harness.coordinator.describe("members")).state == "Stable"
        assert harness.log.reads > 10

    log = run_scenario(first).log
    run_scenario(
        second, GroupCoordinatorHarness(log, config=GroupConfig(offsets_load_buffer_bytes=500))
    )


def test_sessions_start_when_loading_ends() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        harness.log.lose()
        harness.coordinator.drop_partition(0)
        harness.clock.advance_ms(60_000)
        harness.log.lead()
        await harness.take_all()
        heartbeat = Heartbeat(group=GROUP, member=member, instance=None, generation=generation)
        harness.clock.advance_ms(9_000)
        assert await harness.coordinator.heartbeat(heartbeat) is NONE
        harness.clock.advance_ms(10_000)
        assert await harness.coordinator.heartbeat(heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID

    run_scenario(scenario)


def test_requests_during_loading_get_coordinator_load_in_progress() -> None:
    async def scenario() -> None:
        harness = GroupCoordinatorHarness(
            log_written_by(lambda log: log.tables[0].put(offset_record(5)))
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await harness.commit(commit_of(T0, 1)) == [loading]
            assert (await harness.coordinator.fetch(FETCH)).error is loading
            heartbeat = Heartbeat(group=GROUP, member="m", instance=None, generation=1)
            assert (
                await harness.coordinator.heartbeat(heartbeat) is NONE
            )  # no session has started yet
            assert (await harness.coordinator.list_groups(frozenset(), frozenset()))[0] is loading
            await harness.loaded()
            assert await harness.fetch(T0) == [5]
            harness.coordinator.close()

    asyncio.run(scenario())


def test_an_empty_log_needs_no_loading() -> None:
    async def scenario() -> None:
        harness = GroupCoordinatorHarness()
        harness.coordinator.take_partition(0, 0)
        assert await harness.commit(commit_of(T0, 1)) == [NONE]
        harness.coordinator.close()

    asyncio.run(scenario())


def test_loading_waits_for_records_above_the_high_watermark() -> None:
    async def scenario() -> None:
        log = log_written_by(lambda log: log.tables[0].put(offset_record(5)))
        log.is_held = True
        log.append(0, [_batch(offset_record(6))], timeout_ms=1, done=lambda code: None)
        harness = GroupCoordinatorHarness(log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            for _ in range(20):
                await asyncio.sleep(0)
            log.time_out()  # the loader waits again
            for _ in range(20):
                await asyncio.sleep(0)
            assert harness.coordinator.statistics().loading == 1
            log.commit()
            await harness.loaded()
            assert await harness.fetch(T0) == [6]
            harness.coordinator.close()

    asyncio.run(scenario())


def test_loading_stops_when_the_leadership_ends() -> None:
    async def scenario() -> None:
        harness = GroupCoordinatorHarness(
            log_written_by(lambda log: log.tables[0].put(offset_record(5)))
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            await asyncio.sleep(0)
            harness.log.lose()
            await harness.loaded()
            assert await harness.commit(commit_of(T0, 1)) == [ErrorCode.NOT_COORDINATOR]
            harness.log.lead()
            await harness.take_all()
            assert await harness.fetch(T0) == [5]
            harness.coordinator.close()

    asyncio.run(scenario())


def test_offsets_of_topics_deleted_during_loading_are_deleted() -> None:
    async def scenario() -> None:
        harness = GroupCoordinatorHarness(
            log_written_by(lambda log: log.tables[0].put(offset_record(5), offset_record(6, U0)))
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            harness.coordinator.on_topics_deleted(["orders"])
            await harness.loaded()
            assert await harness.fetch_all() == {U0: 6}
            harness.coordinator.close()

    asyncio.run(scenario())


def test_loading_continues_over_compaction_gaps() -> None:
    def write(log: TableLog) -> None:
        table = log.tables[0]
        for number in range(20):
            table.put(offset_record(number))
        table.roll()
        for number in range(5):
            table.put(offset_record(100 + number, T1))
        table.roll()
        table.put((b"\x00\x09unknown", None))
        table.compact()

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 19, T1: 104}

    log = log_written_by(write)
    assert len(log.tables[0].batches()) < 10
    run_scenario(
        scenario, GroupCoordinatorHarness(log, config=GroupConfig(offsets_load_buffer_bytes=1))
    )


def test_a_log_that_ends_in_a_gap_is_loaded() -> None:
    """KAFKA-9065: loading must not wait for offsets that no read returns."""

    class Gapped(TableLog):
        def ends(self, partition: int) -> LogEnds:
            start, committed, end = super().ends(partition)
            return LogEnds(start, committed + 5, end + 5)

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 5}

    log = Gapped()
    log.tables[0].now_ms = START_MS
    log.tables[0].put(offset_record(5))
    run_scenario(scenario, GroupCoordinatorHarness(log))


def test_a_batch_larger_than_the_buffer_is_read_whole() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 299}

    records = [offset_record(number) for number in range(300)]
    log = log_written_by(lambda log: log.tables[0].put(*records))
    run_scenario(
        scenario, GroupCoordinatorHarness(log, config=GroupConfig(offsets_load_buffer_bytes=100))
    )


def test_malformed_records_are_reported_and_skipped() -> None:
    def write(log: TableLog) -> None:
        key, value = offset_record(1)
        log.tables[0].put(
            offset_record(5),
            (b"\x00\x63from the future", b"?"),
            (b"\x00", b"?"),
            (key, value[:5]),
            (key, b"\x00\x63" + value[2:]),
            offset_record(6, U0),
        )
        log.append(0, [_keyless()], timeout_ms=1, done=lambda code: None)
        log.tables[0].put(offset_record(7, T1))

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 5, U0: 6, T1: 7}
        assert len(harness.reports) == 5
        assert [line for line in harness.reports if "offset 1 " in line and "version 99" in line]
        assert [line for line in harness.reports if "offset 6 " in line and "no key" in line]

    run_scenario(scenario, GroupCoordinatorHarness(log_written_by(write)))


def test_reports_of_damage_are_bounded() -> None:
    def write(log: TableLog) -> None:
        log.tables[0].put(*[(b"\x00\x63%d" % number, b"?") for number in range(100)])

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert len(harness.reports) == 21
        assert "80 more" in harness.reports[-1]

    run_scenario(scenario, GroupCoordinatorHarness(log_written_by(write)))


def test_transactional_offsets_take_effect_with_the_marker() -> None:
    def write(log: TableLog) -> None:
        table = log.tables[0]
        table.put(offset_record(1))
        table.put(offset_record(2), pid=9, transactional=True)
        table.put(offset_record(3, T1), pid=10, transactional=True)
        table.put(offset_record(4, U0), pid=11, transactional=True)
        table.end(9, commit=True)
        table.end(10, commit=False)

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 2}
        stable = FetchOffsets(
            group=GROUP, member=None, member_epoch=-1, partitions=(T0, U0), require_stable=True
        )
        reply = await harness.coordinator.fetch(stable)
        assert reply.unstable == {U0}
        assert [offset.offset for offset in reply.offsets] == [2, -1]

    run_scenario(scenario, GroupCoordinatorHarness(log_written_by(write)))


def test_offsets_do_not_expire_while_a_transaction_has_pending_ones() -> None:
    def write(log: TableLog) -> None:
        table = log.tables[0]
        table.put(offset_record(1), offset_record(1, U0))
        table.put(offset_record(2), pid=9, transactional=True)

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.clock.advance_ms(8 * 86_400_000)
        assert await harness.fetch_all() == {T0: 1}
        assert (await harness.coordinator.describe(GROUP)).error is NONE

    run_scenario(scenario, GroupCoordinatorHarness(log_written_by(write)))


def test_a_group_with_only_pending_offsets_is_kept() -> None:
    empty = GroupValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, state_since_ms=START_MS
    )

    def write(log: TableLog) -> None:
        key, value = encode_record(GroupRecord(GroupKey(GROUP), empty))
        log.tables[0].put((key, value))
        log.tables[0].put(offset_record(2), pid=9, transactional=True)

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.clock.advance_ms(8 * 86_400_000)
        assert (await harness.coordinator.describe(GROUP)).protocol_type == "consumer"

    run_scenario(scenario, GroupCoordinatorHarness(log_written_by(write)))


def test_a_long_load_yields_the_event_loop() -> None:
    records = [offset_record(number) for number in range(5_000)]
    log = log_written_by(lambda log: log.tables[0].put(*records))

    async def scenario() -> None:
        harness = GroupCoordinatorHarness(log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            turns = 0
            while harness.coordinator.statistics().loading and turns < 100_000:
                turns += 1
                await asyncio.sleep(0)
            assert turns > 4  # 5,000 records take longer than four steps of 2 ms
            assert await harness.fetch(T0) == [4_999]
            harness.coordinator.close()

    asyncio.run(scenario())


def test_a_damaged_batch_is_skipped() -> None:
    log = log_written_by(
        lambda log: [log.tables[0].put(offset_record(number)) for number in range(3)]
    )
    data = bytearray(log.raw())
    size = len(data) // 3
    data[size + 80] ^= 1

    class Damaged(TableLog):
        def __init__(self) -> None:
            super().__init__()
            self.tables = log.tables

        async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
            chunk = await super().read(partition, start, max_bytes)
            return chunk._replace(batches=bytes(data))

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch_all() == {T0: 2}
        assert len(harness.reports) == 1
        assert "offset 1 has a wrong CRC" in harness.reports[0]

    run_scenario(scenario, GroupCoordinatorHarness(Damaged()))


def _batch(*records: tuple[bytes, bytes | None]) -> bytearray:
    return build_batch(
        [Record(index, START_MS, key, value) for index, (key, value) in enumerate(records)]
    )


def _keyless() -> bytearray:
    return build_batch([Record(0, START_MS, None, b"?")])
