"""Retention of a log whose first segment compaction has emptied."""

from dataclasses import replace

from tests.unit.storage.compacted_logs import Table

from penstock.model.ids import Offset
from penstock.storage.maintenance_jobs import detach_expired

ONE_BATCH = 100  # segment.bytes, which a second batch exceeds
BOTH = frozenset({"compact", "delete"})
KEPT_MS = 10_000


def table_with_an_empty_first_segment(**settings: object) -> Table:
    """Build segments of one batch each, of which compaction has emptied the first.

    Offsets 1 and 2 have a record each, and the active segment starts at 3.
    """
    table = Table(cleanup_policy=BOTH, segment_bytes=ONE_BATCH, **settings)
    table.put((b"k", b"old"))
    table.put((b"k", b"new"))
    table.now_ms += KEPT_MS
    table.put((b"l", b"later"))
    table.put((b"m", b"active"))
    table.compact()
    assert [segment.size > 0 for segment in table.log.segments] == [False, True, True, True]
    return table


def retain(table: Table, now_ms: int) -> list[int]:
    """Return the base offsets of the segments that retention deletes."""
    return [segment.base_offset for segment in detach_expired(table.log, now_ms)]


def test_an_empty_segment_does_not_keep_older_records_from_expiring() -> None:
    table = table_with_an_empty_first_segment(retention_ms=KEPT_MS // 2)
    assert retain(table, table.now_ms) == [0, 1]
    assert table.log.log_start_offset == 2


def test_an_empty_segment_does_not_keep_records_beyond_retention_bytes() -> None:
    table = table_with_an_empty_first_segment(retention_ms=-1, retention_bytes=ONE_BATCH)
    _, size, *later_sizes = [segment.size for segment in table.log.segments]
    assert sum(later_sizes) >= ONE_BATCH > size
    assert retain(table, table.now_ms) == [0, 1]
    assert table.log.log_start_offset == 2


def test_an_empty_segment_does_not_keep_deleted_records() -> None:
    table = table_with_an_empty_first_segment(retention_ms=-1)
    table.log.delete_before(Offset(2))
    assert retain(table, table.now_ms) == [0, 1]


def test_an_empty_segment_stays_as_long_as_the_records_after_it() -> None:
    """With a higher log start, a consumer in the gap would use its auto.offset.reset."""
    table = table_with_an_empty_first_segment(retention_ms=2 * KEPT_MS)
    assert retain(table, table.now_ms) == []
    size = table.log.segments.size_bytes
    table.log.reconfigure(replace(table.config, retention_bytes=size))
    assert retain(table, table.now_ms) == []
    assert table.log.log_start_offset == 0


def test_an_empty_active_segment_stays() -> None:
    table = table_with_an_empty_first_segment(retention_ms=0)
    table.roll()
    table.now_ms += KEPT_MS
    assert retain(table, table.now_ms) == [0, 1, 2, 3]
    assert retain(table, table.now_ms) == []
    assert table.log.log_start_offset == table.log.log_end_offset == 4
