from collections.abc import Callable
from dataclasses import replace
from errno import EIO, ENOSPC
from itertools import pairwise
from typing import TypeVar

import pytest
from tests.unit.storage.compacted_logs import FOLDER, Table, directly, lasting, table_of

from penstock.config.log_config import StorageConfig
from penstock.model.ids import Offset, TimestampMs
from penstock.protocol.batch import APPEND_TIME, iter_headers, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, iter_records, replace_records
from penstock.storage.compaction import CompactionJob, CompactionResult
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.offset_map import ENTRY_BYTES
from penstock.testing.simulated_disk import OperationKind

RETENTION_MS = 500
Result = TypeVar("Result")


def make_table(**settings: object) -> Table:
    return Table(delete_retention_ms=RETENTION_MS, **settings)


def leftovers(table: Table) -> list[str]:
    endings = (".cleaned", ".swap", ".deleted")
    return [path for path in table.disk.files() if path.endswith(endings)]


# -- records -------------------------------------------------------------------------------------


def test_the_latest_record_of_a_key_stays_at_its_offset() -> None:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"a", b"2"))
    table.roll()
    table.compact()
    assert [(s.offset, s.key, s.value) for s in table.everything()] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
    ]
    assert table.log.log_end_offset == 3


def test_a_consumer_reaches_the_visible_end_of_a_compacted_topic_with_a_delay() -> None:
    """What precedes the visible end is kept, though later records of the key follow it."""
    table = make_table(message_timestamp_type="LogAppendTime", penstock_delay_ms=1_000)
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"a", b"2"))
    table.roll()
    table.now_ms += 1_000
    table.put((b"a", b"3"))
    table.roll()
    table.put((b"c", b"1"))
    table.compact()
    ends = [header.next_offset for header, _ in table.batches()]
    assert 3 in ends
    assert [(s.offset, s.value) for s in table.everything()] == [
        (1, b"1"),
        (2, b"2"),
        (3, b"3"),
        (4, b"1"),
    ]


def test_the_active_segment_is_not_compacted() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.roll()
    table.put((b"a", b"2"))
    table.compact()
    assert table.list_keys() == [b"a", b"a"]


def test_a_dirty_key_replaces_one_in_the_clean_part() -> None:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.roll()
    table.compact()
    table.put((b"a", b"2"))
    table.roll()
    table.compact()
    assert table_of(table.committed()) == {b"a": b"2", b"b": b"1"}
    assert len(table.everything()) == 2


def test_records_without_a_key_are_removed() -> None:
    table = make_table(cleanup_policy=frozenset({"delete"}))
    table.put((None, b"1"), (b"a", b"1"))
    table.roll()
    table.compact()
    assert table.list_keys() == [b"a"]


def test_long_keys_with_a_common_prefix_are_different_keys() -> None:
    table = make_table()
    keys = [b"k" * length for length in range(1, 40)]
    for key in keys:
        table.put((key, b"1"))
    table.put((b"k" * 16, b"2"))
    table.roll()
    table.compact()
    assert sorted(k for k in table.list_keys() if k is not None) == keys


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_keeps_all_records_is_copied_byte_for_byte(codec: Codec) -> None:
    table = make_table()
    table.put((b"gone", b"1"))
    table.put((b"a", b"1" * 100), (b"b", b"1" * 100), codec=codec)
    table.put((b"gone", b"2"))
    table.roll()
    whole = next(content for header, content in table.batches() if header.base_offset == 1)
    table.compact()
    assert [content for header, content in table.batches() if header.base_offset == 1] == [whole]
    assert table.list_keys() == [b"a", b"b", b"gone"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rebuilt_batch_keeps_codec_producer_range_and_sequence(codec: Codec) -> None:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), pid=5, codec=codec)
    old = table.batches()[0][0]
    table.put((b"a", b"2"), (b"c", b"2"))
    table.roll()
    table.compact()
    new, content = table.batches()[0]
    kept = ("base_offset", "leader_epoch", "attributes", "last_offset_delta", "producer_id")
    for name in (*kept, "producer_epoch", "base_sequence", "last_sequence", "max_timestamp"):
        assert getattr(new, name) == getattr(old, name)
    assert new.record_count == 1
    assert [(r.offset, r.key, r.value) for r in iter_records(content)] == [(1, b"b", b"1")]


def test_the_largest_timestamp_is_that_of_the_remaining_records() -> None:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), step_ms=10)
    table.put((b"a", b"2"), (b"c", b"2"))
    table.roll()
    table.compact()
    header, content = table.batches()[0]
    assert header.max_timestamp == 1_010
    assert [record.timestamp_ms for record in iter_records(content)] == [1_010]


def test_append_time_stays_through_a_rebuild() -> None:
    table = make_table(message_timestamp_type="LogAppendTime")
    table.now_ms = 5_000
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"a", None))
    table.roll()
    table.compact()
    assert all(header.attributes & APPEND_TIME for header, _ in table.batches())
    assert [(s.key, s.timestamp_ms) for s in table.everything()] == [(b"b", 5_000), (b"a", 5_000)]


# -- tombstones ----------------------------------------------------------------------------------


def test_a_tombstone_is_removed_delete_retention_ms_after_the_first_pass() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.put((b"a", None), (b"b", b"1"))
    table.roll()
    table.now_ms = 100_000  # the record's own age has no effect
    table.compact()
    assert table.list_keys() == [b"a", b"b"]
    assert table.log.delete_horizon_ms == 100_000 + RETENTION_MS
    table.now_ms += RETENTION_MS - 1
    table.compact()
    assert table.list_keys() == [b"a", b"b"]
    table.now_ms += 1
    table.compact()
    assert table.list_keys() == [b"b"]


def test_records_next_to_a_tombstone_keep_their_timestamp() -> None:
    table = make_table()
    table.put((b"a", None), (b"b", b"1"))
    table.roll()
    table.now_ms = 100_000
    table.compact()
    assert [seen.timestamp_ms for seen in table.everything()] == [1_000, 1_000]
    table.now_ms += RETENTION_MS
    table.compact()
    assert [(seen.key, seen.timestamp_ms) for seen in table.everything()] == [(b"b", 1_000)]


def test_a_tombstone_beyond_the_end_of_a_pass_waits_for_the_next_pass() -> None:
    table = make_table()
    for key in (b"a", b"b", b"c"):
        table.put((key, b"1"))
    table.put((b"a", None))
    table.roll()
    tiny = StorageConfig(cleaner_dedupe_buffer_bytes=ENTRY_BYTES)
    while table.log.cleaned_offset < 4:
        table.compact(tiny)
        assert table_of(table.committed()) == {b"b": b"1", b"c": b"1"}
        table.now_ms += 2 * RETENTION_MS
    assert table.list_keys() == [b"b", b"c", b"a"]
    table.compact(tiny)
    assert table.list_keys() == [b"b", b"c"]


# -- transactions and producers ------------------------------------------------------------------


def test_aborted_records_are_removed_and_do_not_replace_older_ones() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.put((b"a", b"2"), pid=1, transactional=True)
    table.end(1, commit=False)
    table.roll()
    table.compact()
    assert [(s.key, s.value) for s in table.everything()] == [(b"a", b"1")]


def test_an_open_transaction_blocks_compaction() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.put((b"a", b"2"), pid=1, transactional=True)
    table.roll()
    table.put((b"a", b"3"))
    table.roll()
    assert table.compact() is None
    table.end(1, commit=True)
    table.compact()
    assert [s.value for s in table.everything()] == [b"3"]


def test_a_marker_is_removed_some_time_after_its_records() -> None:
    table = make_table()
    table.put((b"a", b"1"), pid=1, transactional=True)
    marker = table.end(1, commit=True)
    table.put((b"b", b"1"), pid=1)  # so that this is the producer's last batch
    table.roll()
    table.compact()
    assert table.markers() == [marker]
    table.put((b"a", b"2"), (b"b", b"2"))
    table.roll()
    table.compact()
    assert table.markers() == [marker]
    table.now_ms += RETENTION_MS
    table.compact()
    assert table.markers() == []


def test_an_abort_stays_in_the_transaction_index_until_its_records_are_gone() -> None:
    table = make_table()
    table.put((b"a", b"1"), pid=1, transactional=True)
    table.end(1, commit=False)
    table.roll()
    table.compact()
    empty = table.batches()[0][0]
    assert (empty.producer_id, empty.record_count) == (1, 0)
    assert [a.first_offset for a in table.log.aborted(Offset(0), Offset(2))] == [0]
    table.put((b"b", b"1"), pid=1)
    table.roll()
    table.compact()
    assert table.log.aborted(Offset(0), table.log.log_end_offset) == []


def test_keys_of_control_records_replace_nothing() -> None:
    table = make_table()
    commit_key = b"\x00\x00\x00\x01"
    table.put((commit_key, b"mine"))
    table.put((b"a", b"1"), pid=1, transactional=True)
    table.end(1, commit=True)
    table.roll()
    table.compact()
    assert (commit_key, b"mine") in [(s.key, s.value) for s in table.everything()]
    table.put((commit_key, b"newer"))
    table.roll()
    table.compact()
    assert len(table.markers()) == 1


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_batch() -> None:
    table = make_table()
    table.put((b"a", b"1"), pid=3)
    table.put((b"a", b"1"), pid=3)
    table.put((b"a", b"2"))
    table.roll()
    table.compact()
    empties = [header for header, _ in table.batches() if not header.record_count]
    assert [(h.producer_id, h.base_offset, h.last_sequence) for h in empties] == [(3, 1, 1)]
    assert lasting(list(table.reopened().producers.producers())) == lasting(
        list(table.log.producers.producers())
    )


def test_batches_of_an_expired_producer_are_removed() -> None:
    table = make_table()
    table.put((b"a", b"1"), pid=3)
    table.put((b"a", b"2"))
    table.roll()
    table.log.producers.expire(now_ms=10**9, expiration_ms=1)
    table.compact()
    assert [header.base_offset for header, _ in table.batches()] == [1]


def test_a_producer_with_only_a_marker_stays_in_the_producer_state() -> None:
    table = make_table()
    table.put((b"a", b"1"), pid=3, transactional=True)
    table.end(3, commit=True, epoch=1)
    table.put((b"a", b"2"))
    table.roll()
    for _ in range(3):
        table.compact()
        table.now_ms += RETENTION_MS
    reopened = table.reopened().producers.find(3)
    assert reopened is not None
    assert reopened.producer_epoch == 1


# -- shape ---------------------------------------------------------------------------------------


def test_no_batch_without_records_remains_at_the_end_of_a_segment() -> None:
    table = make_table(segment_bytes=200)
    for number in range(20):
        table.put((b"k%d" % number, b"v" * 100))
        table.put((b"same", b"v" * 100))
    table.roll()
    table.put((b"last", b"1"))
    table.compact()
    assert len(table.log.segments) > 10
    assert all(header.record_count for header, _ in table.batches())
    assert len(table.everything()) == 22


def test_a_batch_without_records_keeps_the_log_end_until_others_follow() -> None:
    """A new replica fetches up to the last batch, and must reach the leader's log end offset."""
    table = make_table()
    table.put((b"a", b"1"))
    table.roll()
    table.put((b"b", None))
    table.roll()
    table.compact()
    table.now_ms += RETENTION_MS
    table.compact()
    assert [(h.base_offset, h.record_count) for h, _ in table.batches()] == [(0, 1), (1, 0)]
    table.put((b"c", b"1"))
    table.compact()
    assert [(h.base_offset, h.record_count) for h, _ in table.batches()] == [(0, 1), (2, 1)]


def test_a_batch_that_may_be_lost_does_not_keep_the_log_end() -> None:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"a", b"1"))
    table.put((b"a", b"1"), pid=1, transactional=True)
    table.end(1, commit=False)
    table.log.producers.expire(now_ms=10**9, expiration_ms=1)
    table.roll()
    table.put((b"c", b"1"))
    table.log.durable_offset = Offset(5)
    table.compact()
    table.now_ms += RETENTION_MS
    table.compact()
    shape = [(h.base_offset, h.record_count) for h, _ in table.batches()]
    assert shape == [(0, 1), (2, 1), (4, 0), (5, 1)]
    table.settle()
    table.compact()
    assert [header.base_offset for header, _ in table.batches()] == [0, 2, 5]


def test_a_batch_without_records_keeps_the_last_stable_offset() -> None:
    """A consumer with isolation.level=read_committed reads up to the last batch below it."""
    table = make_table()
    table.put((b"a", b"1"))
    table.put((b"b", None))
    table.roll()
    table.put((b"c", b"1"), pid=1, transactional=True)
    table.compact()
    table.now_ms += RETENTION_MS
    table.compact()
    assert table.log.last_stable_offset == 2 < table.log.high_watermark
    shape = [(h.base_offset, h.record_count) for h, _ in table.batches()]
    assert shape == [(0, 1), (1, 0), (2, 1)]
    table.end(1, commit=True)
    table.compact()
    assert [header.base_offset for header, _ in table.batches()] == [0, 2, 3]


def test_empty_batches_of_an_earlier_pass_are_removed() -> None:
    """Earlier versions left one at the end of each new segment."""
    table = make_table()
    table.put((b"a", b"1"))
    for offset in (1, 2):
        batch = build_batch([Record(offset, 1_000, b"a", b"1")], base_offset=offset)
        header = read_header(batch)
        empty = replace_records(header, b"", record_count=0, max_timestamp_ms=-1)
        table.log.append_as_follower(memoryview(empty), table.now_ms)
        table.settle()
        table.roll()
    table.put((b"b", b"1"))
    assert [header.record_count for header, _ in table.batches()] == [1, 0, 0, 1]
    table.compact()
    assert [header.record_count for header, _ in table.batches()] == [1, 1]


def test_a_segment_may_lose_all_its_batches() -> None:
    table = make_table(segment_bytes=300)
    for key in (b"a", b"b", b"a"):
        table.put((key, b"v" * 200))
        table.roll()
    table.put((b"b", b"w" * 200))
    table.roll()
    table.put((b"c", b"1"))
    table.compact()
    assert [segment.size > 0 for segment in table.log.segments] == [False, False, True, True, True]
    assert [seen.offset for seen in table.everything()] == [2, 3, 4]
    assert table.reopened().log_end_offset == 5
    table.compact()
    assert len(table.log.segments) == 3, "empty segments combine with their neighbours"


def test_nothing_is_replaced_before_the_recovery_point_is_durable() -> None:
    table = filled()
    results: list[CompactionResult] = []
    CompactionJob(
        table.log,
        disk=table.disk,
        storage=StorageConfig(),
        now_ms=table.now_ms,
        checkpoint=lambda on_owner: Offset(2),
        on_done=results.append,
    ).run(directly)
    assert results[0].problem is not None
    assert table.list_keys() == [b"a", b"b", b"a", b"c"]
    assert not leftovers(table)
    assert table.log.failure is None


# -- reads after a pass --------------------------------------------------------------------------


def read_offsets(table: Table, start: int, *, skip_empty: bool, max_bytes: int = 1) -> list[int]:
    read = table.log.read(
        Offset(start),
        below=table.log.high_watermark,
        max_bytes=max_bytes,
        at_least_one=True,
        skip_empty=skip_empty,
    )
    content = b"".join(table.disk.pread(p.fd, p.length, p.position) for p in read.slices)
    read.lease.release()
    return [header.base_offset for _, header in iter_headers(content)]


def with_empty_batches() -> Table:
    """Build a log with empty batches at offsets 0 to 2 and 4, the last of their producers.

    Offsets 4 and 5 are in their own segment.
    """
    table = make_table(segment_bytes=600)
    for producer in (1, 2, 3):
        table.put((b"a", b"1"), pid=producer)
    table.put((b"b", b"v" * 300))
    table.roll()
    table.put((b"a", b"1"), pid=4)
    table.put((b"a", b"v" * 400))
    table.roll()
    table.put((b"c", b"1"))
    table.compact()
    shape = [(h.base_offset, h.record_count) for h, _ in table.batches()]
    assert shape == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 0), (5, 1), (6, 1)]
    return table


def test_a_consumer_gets_records_and_a_follower_gets_every_batch() -> None:
    table = with_empty_batches()
    assert read_offsets(table, 0, skip_empty=True) == [3]
    assert read_offsets(table, 0, skip_empty=False) == [0]
    assert read_offsets(table, 4, skip_empty=True) == [5], "also where the last read ended"
    assert read_offsets(table, 4, skip_empty=False) == [4]
    assert read_offsets(table, 1, skip_empty=True, max_bytes=10_000) == [3]


def test_a_topic_that_is_no_longer_compacted_still_returns_records_first() -> None:
    table = with_empty_batches()
    table.log.reconfigure(replace(table.config, cleanup_policy=frozenset({"delete"})))
    assert read_offsets(table, 0, skip_empty=True) == [3]
    assert read_offsets(table, 4, skip_empty=True) == [5], "also where the last read ended"


def test_a_consumer_gets_batches_without_records_if_nothing_else_is_left() -> None:
    """Its position must still reach the end."""
    table = with_empty_batches()
    table.put((b"d", b"1"), pid=9)
    table.put((b"d", b"1"))
    table.roll()
    table.put((b"e", b"1"))
    table.compact()
    table.log.truncate_to(Offset(8), 0)
    assert [(h.base_offset, h.record_count) for h, _ in table.batches()][-1] == (7, 0)
    assert read_offsets(table, 7, skip_empty=True) == [7]


def test_a_first_batch_larger_than_max_bytes_is_returned_whole() -> None:
    table = with_empty_batches()
    size = next(header.size for header, _ in table.batches() if header.base_offset == 3)
    for max_bytes in (0, 1, size - 1, size):
        assert read_offsets(table, 0, skip_empty=True, max_bytes=max_bytes) == [3]


def test_adjacent_segments_are_merged_up_to_the_size_of_a_segment() -> None:
    table = make_table(segment_bytes=1_000)
    for number in range(12):
        table.put((b"k%d" % number, b"v" * 300))
        table.roll()
    table.compact()
    sizes = [segment.size for segment in table.log.segments]
    assert all(size <= 1_000 for size in sizes)
    assert all(a + b > 1_000 for a, b in pairwise(sizes[:-1]))
    assert len(table.everything()) == 12


def test_the_new_segments_indexes_find_every_batch() -> None:
    table = make_table(index_interval_bytes=200)
    for number in range(60):
        table.now_ms += 1
        table.put((b"k%d" % (number % 40), b"v" * 50))
    table.roll()
    table.compact()
    segment = table.log.segments[0]
    assert len(segment.offset_index) > 5
    for header, _ in table.batches():
        placed = segment.find_batch(header.base_offset)
        assert placed is not None
        assert placed.header == header
        timed = table.log.find_by_time(TimestampMs(header.max_timestamp))
        assert timed is not None
        assert timed.offset == header.base_offset
    assert segment.max_timestamp == table.now_ms


def test_the_timestamp_of_an_empty_batch_is_not_found() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.now_ms += 1_000
    table.put((b"b", b"1"), pid=1, transactional=True)
    table.end(1, commit=False)
    table.roll()
    table.compact()
    assert [header.base_offset for header, _ in table.batches() if not header.record_count] == [1]
    times = table.log.segments[0].time_index
    assert [times.entry(index).value for index in range(len(times))] == [2]  # that of the marker


def test_an_unchanged_segment_is_not_rewritten() -> None:
    table = make_table()
    table.put((b"a", b"1"))
    table.roll()
    before = len(table.disk.trace)
    result = table.compact()
    assert result is not None
    assert table.log.cleaned_offset == 1
    assert len(table.disk.trace) == before


def test_a_small_offset_map_needs_several_passes() -> None:
    table = make_table()
    for number in range(10):
        table.put((b"k%d" % number, b"1"))
    for number in range(10):
        table.put((b"k%d" % number, b"2"))
    table.roll()
    small = StorageConfig(cleaner_dedupe_buffer_bytes=4 * ENTRY_BYTES)
    ends = []
    while table.log.cleaned_offset < 20:
        table.compact(small)
        ends.append(table.log.cleaned_offset)
    assert len(ends) == 5
    assert [s.value for s in table.everything()] == [b"2"] * 10


def test_snapshots_of_replaced_segments_are_removed() -> None:
    table = make_table()
    for _ in range(3):
        table.put((b"a", b"1"), pid=1)
        table.roll()
    assert table.log.snapshots.offsets == [1, 2, 3]
    table.compact()
    assert table.log.snapshots.offsets == [3]


# -- during other operations ---------------------------------------------------------------------


class InterruptingOwner:
    """An owner that runs an action right before each of the job's next calls."""

    def __init__(self, *actions: Callable[[], object] | None) -> None:
        self._actions = list(actions)

    def __call__(self, function: Callable[[], Result]) -> Result:
        if self._actions:
            action = self._actions.pop(0)
            if action is not None:
                action()
        return function()


def run(table: Table, on_owner: InterruptingOwner) -> CompactionResult:
    results: list[CompactionResult] = []
    CompactionJob(
        table.log,
        disk=table.disk,
        storage=StorageConfig(),
        now_ms=table.now_ms,
        checkpoint=lambda on_owner: table.log.durable_offset,
        on_done=results.append,
    ).run(on_owner)
    return results[0]


def filled() -> Table:
    table = make_table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.roll()
    table.put((b"a", b"2"))
    table.roll()
    table.put((b"c", b"1"))
    return table


PLAN, COMMIT, COMPLETE = None, None, None


def test_a_reader_with_a_lease_continues_in_the_old_file() -> None:
    table = filled()
    read = table.log.read(Offset(0), below=Offset(3), max_bytes=10_000, at_least_one=True)
    piece = read.slices[0]
    before = table.disk.pread(piece.fd, piece.length, piece.position)
    table.compact()
    assert table.disk.pread(piece.fd, piece.length, piece.position) == before
    read.lease.release()
    assert table.list_keys() == [b"b", b"a", b"c"]


def test_appends_and_rolls_continue_during_a_pass() -> None:
    table = filled()

    def append() -> None:
        table.put((b"d", b"1"))
        table.roll()

    result = run(table, InterruptingOwner(PLAN, append, append, append))
    assert result.problem is None
    assert table.list_keys() == [b"b", b"a", b"c", b"d", b"d", b"d"]
    assert table.log.log_end_offset == 7


@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_truncation_during_a_pass_discards_its_result(visit: int, offset: int) -> None:
    table = filled()
    expected = filled()
    expected.log.truncate_to(Offset(offset), 0)
    actions: list[Callable[[], object] | None] = [None] * visit
    result = run(
        table, InterruptingOwner(*actions, lambda: table.log.truncate_to(Offset(offset), 0))
    )
    assert result.problem is not None
    assert table.everything() == expected.everything()
    assert table.reopened().log_end_offset == expected.log.log_end_offset
    assert table.log.cleaned_offset == 0
    assert not leftovers(table)
    assert not table.log.is_compacting


def test_a_truncation_after_the_commit_point_undoes_the_swap_too() -> None:
    table = filled()
    table.put((b"d", b"1"))
    result = run(
        table, InterruptingOwner(PLAN, COMMIT, lambda: table.log.truncate_to(Offset(4), 0))
    )
    assert result.problem is not None
    assert table.list_keys() == [b"a", b"b", b"a", b"c"]
    assert not leftovers(table)
    table.compact()
    assert table.list_keys() == [b"b", b"a", b"c"]


def test_a_log_that_fails_during_a_pass_is_not_changed() -> None:
    table = filled()

    def fail() -> None:
        table.log.failure = OSError(EIO, "elsewhere")

    result = run(table, InterruptingOwner(PLAN, fail))
    assert result.problem is not None
    assert [segment.base_offset for segment in table.log.segments] == [0, 2, 3]
    assert not leftovers(table)


def test_only_one_pass_runs_at_a_time() -> None:
    table = filled()
    table.log.is_compacting = True
    assert table.compact() is None


# -- errors --------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_pass_and_nothing_else() -> None:
    table = filled()
    table.disk.fail_path(".log.cleaned", ENOSPC, frozenset({OperationKind.WRITE}))
    result = table.compact()
    assert result is not None
    assert result.problem is not None
    assert table.log.failure is None
    assert table.list_keys() == [b"a", b"b", b"a", b"c"]
    assert not leftovers(table)
    table.disk.heal()
    table.compact()
    assert table.list_keys() == [b"b", b"a", b"c"]


def test_a_failing_disk_fences_the_log() -> None:
    table = filled()
    table.disk.fail_path(".log.cleaned", EIO, frozenset({OperationKind.SYNC}))
    table.compact()
    assert table.log.failure is not None


def test_a_folder_that_cannot_be_synced_fences_the_log() -> None:
    table = filled()
    table.disk.fail_path(FOLDER, EIO, frozenset({OperationKind.SYNC_DIRECTORY}))
    table.compact()
    assert table.log.failure is not None


def test_damage_is_not_copied_and_makes_the_log_uncleanable() -> None:
    table = filled()
    table.disk.flip_bit(table.log.segments[0].file.path, 8 * 70)
    result = table.compact()
    assert result is not None
    assert result.problem is not None
    assert table.log.uncleanable is not None
    assert table.log.failure is None
    assert [segment.base_offset for segment in table.log.segments] == [0, 2, 3]


def test_no_descriptor_stays_open() -> None:
    table = filled()
    table.compact()
    table.log.segments.active.release()
    for segment in table.log.segments:
        segment.release()
    assert table.disk.open_descriptors == 0


def test_the_throttler_pauses_for_the_bytes_spent() -> None:
    clock = [100.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    throttle = CleanerThrottler(1_000, clock=lambda: clock[0], pause=pause)
    for _ in range(10):
        throttle.spend(500)
    assert clock[0] == pytest.approx(105.0)
    clock[0] += 60  # idle time is not credited
    throttle.spend(500)
    assert pauses[-1] == pytest.approx(0.5)


def test_a_pass_is_throttled_by_the_bytes_that_it_reads_and_writes() -> None:
    table = filled()
    spent: list[float] = []
    clock = [0.0]

    def pause(seconds: float) -> None:
        spent.append(seconds)
        clock[0] += seconds

    size = sum(segment.size for segment in table.log.segments) - table.log.segments.active.size
    job = CompactionJob(
        table.log,
        disk=table.disk,
        storage=StorageConfig(),
        now_ms=0,
        checkpoint=lambda on_owner: table.log.durable_offset,
        throttle=CleanerThrottler(1, clock=lambda: clock[0], pause=pause),
    )
    job.run(directly)
    written = table.log.segments[0].size
    assert sum(spent) == pytest.approx(2 * size + written)
