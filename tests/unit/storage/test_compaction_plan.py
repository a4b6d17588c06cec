from typing import cast

import pytest
from tests.unit.storage.compacted_logs import Table

from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.storage.compaction import find_filthiest
from penstock.storage.compaction_plan import (
    CleanableSegment,
    IndexBytes,
    group_segments,
    is_due,
    measure,
)
from penstock.storage.segment import MAX_RELATIVE_OFFSET, Segment


def make_table(segments: int = 4, **settings: object) -> Table:
    """Make `count` sealed segments of one record with the same key, and the active one."""
    table = Table(**settings)
    for _ in range(segments):
        table.put((b"a", b"1"))
        table.roll()
    table.put((b"a", b"1"))
    return table


def test_all_sealed_segments_are_cleanable_and_dirty_at_first() -> None:
    table = make_table(4)
    cleanable = measure(table.log, table.now_ms)
    assert (cleanable.segment_count, cleanable.first_dirty_offset, cleanable.end_offset) == (
        4,
        0,
        4,
    )
    assert cleanable.clean_bytes == 0
    assert cleanable.dirty_ratio == 1.0


def test_the_dirty_ratio_counts_what_was_cleaned() -> None:
    table = make_table(4)
    table.log.cleaned_offset = Offset(3)
    assert measure(table.log, table.now_ms).dirty_ratio == pytest.approx(0.25)


@pytest.mark.parametrize("bound", ["high_watermark", "durable_offset"])
def test_nothing_above_the_high_watermark_or_the_durable_offset_is_cleanable(bound: str) -> None:
    table = make_table(4)
    setattr(table.log, bound, Offset(2))
    assert measure(table.log, table.now_ms).segment_count == 2


def test_nothing_that_the_topics_delay_holds_back_is_cleanable() -> None:
    table = Table(message_timestamp_type="LogAppendTime", penstock_delay_ms=1_000)
    for _ in range(3):
        table.put((b"a", b"1"))
        table.roll()
        table.now_ms += 400
    table.put((b"a", b"1"))
    assert measure(table.log, table.now_ms).segment_count == 1
    assert measure(table.log, table.now_ms + 200).segment_count == 2
    assert measure(table.log, table.now_ms + 600).segment_count == 3


def test_nothing_from_the_first_open_transaction_on_is_cleanable() -> None:
    table = make_table(2)
    table.put((b"a", b"1"), pid=1, transactional=True)
    table.roll()
    table.put((b"a", b"1"))
    table.roll()
    assert measure(table.log, table.now_ms).segment_count == 2


def test_nothing_younger_than_the_lag_is_cleanable() -> None:
    table = Table(min_compaction_lag_ms=100)
    for _ in range(4):
        table.put((b"a", b"1"))
        table.roll()
        table.now_ms += 50
    assert measure(table.log, table.now_ms).segment_count == 3
    assert measure(table.log, table.now_ms + 50).segment_count == 4


@pytest.mark.parametrize("cleaned", [1, 99])
def test_an_out_of_range_cleaned_offset_makes_the_whole_log_dirty(cleaned: int) -> None:
    table = make_table(4)
    table.log.delete_before(Offset(2))
    table.log.cleaned_offset = Offset(cleaned)
    assert measure(table.log, table.now_ms).first_dirty_offset == 2


def test_a_log_is_due_above_its_ratio_only() -> None:
    table = make_table(4, min_cleanable_dirty_ratio=0.5)
    table.log.cleaned_offset = Offset(2)
    assert not is_due(measure(table.log, table.now_ms), table.config)
    table.log.cleaned_offset = Offset(1)
    assert is_due(measure(table.log, table.now_ms), table.config)


def test_a_log_is_due_when_a_dirty_record_has_waited_too_long() -> None:
    table = make_table(4, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1_000)
    table.log.cleaned_offset = Offset(3)
    assert not is_due(measure(table.log, table.now_ms + 1_000), table.config)
    assert is_due(measure(table.log, table.now_ms + 1_001), table.config)
    table.log.cleaned_offset = Offset(4)
    assert not is_due(measure(table.log, table.now_ms + 9_000), table.config)


def test_a_log_without_dirty_bytes_is_due_when_a_delete_horizon_has_passed() -> None:
    table = Table(delete_retention_ms=500)
    table.put((b"a", None), (b"b", b"1"))
    table.roll()
    table.compact()
    assert find_filthiest([table.log], table.now_ms + 499) is None
    assert find_filthiest([table.log], table.now_ms + 500) is table.log
    table.now_ms += 500
    table.compact()
    assert find_filthiest([table.log], table.now_ms + 10**9) is None


def test_tombstones_are_checked_once_after_a_restart() -> None:
    table = Table(delete_retention_ms=500)
    table.put((b"a", None), (b"b", b"1"))
    table.roll()
    table.compact()
    log = table.reopened()
    log.cleaned_offset = log.log_end_offset
    assert find_filthiest([log], 10_000) is None
    assert find_filthiest([log], 10_499) is None
    assert find_filthiest([log], 10_500) is log


def test_the_dirtiest_log_is_compacted_first() -> None:
    tables = [make_table(4, min_cleanable_dirty_ratio=0.1) for _ in range(3)]
    for table, cleaned in zip(tables, (2, 1, 3), strict=True):
        table.log.cleaned_offset = Offset(cleaned)
    assert find_filthiest([table.log for table in tables], 1_000) is tables[1].log


def test_logs_that_cannot_be_compacted_are_skipped() -> None:
    other_policy = make_table(4, cleanup_policy=frozenset({"delete"}))
    failed, given_up, busy = make_table(4), make_table(4), make_table(4)
    failed.log.failure = OSError("gone")
    given_up.log.uncleanable = "damaged"
    busy.log.is_compacting = True
    logs = [table.log for table in (other_policy, failed, given_up, busy)]
    assert find_filthiest(logs, 1_000) is None


def make_source(base: int, end: int, size: int = 10) -> CleanableSegment:
    return CleanableSegment(cast("Segment", None), base, end, size, "", "")


def group_bases(
    sources: list[CleanableSegment], *, index: int = 0, **settings: int
) -> list[list[int]]:
    indexes = [IndexBytes(index, 0)] * len(sources)
    groups = group_segments(sources, indexes, LogConfig(**settings))  # type: ignore[arg-type]
    return [[source.base_offset for source in group] for group in groups]


def test_groups_are_at_most_as_large_as_a_segment() -> None:
    sources = [make_source(n, n + 1) for n in range(5)]
    assert group_bases(sources, segment_bytes=20) == [[0, 1], [2, 3], [4]]
    assert group_bases(sources, segment_bytes=9) == [[0], [1], [2], [3], [4]]


def test_groups_are_at_most_as_large_as_an_index() -> None:
    sources = [make_source(n, n + 1) for n in range(4)]
    assert group_bases(sources, index=8, segment_index_bytes=24) == [[0, 1, 2], [3]]


def test_groups_span_only_offsets_that_an_index_can_express() -> None:
    far = MAX_RELATIVE_OFFSET + 1
    sources = [make_source(0, 10), make_source(10, far), make_source(far, far + 1)]
    assert group_bases(sources) == [[0, 10], [far]]
