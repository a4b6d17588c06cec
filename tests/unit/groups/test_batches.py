"""Records of groups in batches: split by size, read back in order, whatever is between them."""

import pytest

from penstock.groups.batches import Replayed, TooLarge, build_batches, read_batches
from penstock.groups.records import GroupKey, GroupRecord, OffsetKey, OffsetValue
from penstock.protocol.batch import read_header, stamp_offset_and_epoch
from penstock.protocol.compression import Codec

NOW_MS = 1_700_000_000_000
NEVER = GroupRecord(GroupKey("gone"), None)


def offsets(count: int, metadata: str = "") -> list[GroupRecord]:
    return [
        GroupRecord(OffsetKey("g", "orders", number), OffsetValue(number, -1, metadata, NOW_MS))
        for number in range(count)
    ]


def placed(batches: list[bytearray]) -> bytes:
    """As a log would number them."""
    end_offset = 0
    for batch in batches:
        stamp_offset_and_epoch(batch, 0, end_offset, 0)
        end_offset = read_header(batch).next_offset
    return b"".join(batches)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_written_is_read_in_order(codec: Codec) -> None:
    records = [*offsets(50, "note"), NEVER]
    batches = build_batches(records, now_ms=NOW_MS, max_bytes=1_000_000, codec=codec)
    assert len(batches) == 1
    assert read_header(batches[0]).codec == codec
    read = list(read_batches(placed(batches), pytest.fail))
    assert read == [Replayed(each, offset, -1) for offset, each in enumerate(records)]


@pytest.mark.parametrize("max_bytes", [200, 500, 1_000, 10_000])
def test_no_batch_is_larger_than_the_topic_takes(max_bytes: int) -> None:
    records = offsets(100, "some note")
    batches = build_batches(records, now_ms=NOW_MS, max_bytes=max_bytes)
    assert max(map(len, batches)) <= max_bytes
    read = list(read_batches(placed(batches), pytest.fail))
    assert read == [Replayed(each, offset, -1) for offset, each in enumerate(records)]


def test_as_few_batches_as_fit() -> None:
    one = build_batches(offsets(1), now_ms=NOW_MS, max_bytes=10_000)
    assert len(build_batches(offsets(3), now_ms=NOW_MS, max_bytes=3 * len(one[0]))) == 1


def test_a_record_beyond_the_limit_names_its_group_and_what_to_do() -> None:
    with pytest.raises(TooLarge, match=r"'g'.*max\.message\.bytes"):
        build_batches(offsets(1, "n" * 300), now_ms=NOW_MS, max_bytes=300)


def test_nothing_to_write_is_no_batch() -> None:
    assert build_batches([], now_ms=NOW_MS, max_bytes=100) == []
    assert list(read_batches(b"", pytest.fail)) == []


def test_a_tail_that_is_no_batch_is_told_and_left() -> None:
    batches = build_batches(offsets(2), now_ms=NOW_MS, max_bytes=10_000)
    told: list[str] = []
    read = list(read_batches(placed(batches) + bytes(100), told.append))
    assert len(read) == 2
    assert len(told) == 1
    assert "passed over" in told[0]
