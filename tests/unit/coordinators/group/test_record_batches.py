"""Batches of group records: split by size, read in order, with damage skipped."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.coordinators.group.coordinator_harness import FixedTopics

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.record_batches import (
    Latest,
    Replayed,
    build_batches,
    read_batches,
    read_latest,
    take_latest,
)
from penstock.coordinators.group.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    OffsetValue,
    encode_record,
)
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.runtime.record_batches import TooLarge
from penstock.protocol.batch import read_header, stamp_offset_and_epoch
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch

NOW_MS = 1_700_000_000_000
NEVER = GroupRecord(GroupKey("gone"), None)


def offsets(count: int, metadata: str = "") -> list[GroupRecord]:
    return [
        GroupRecord(OffsetKey("g", "orders", number), OffsetValue(number, -1, metadata, NOW_MS))
        for number in range(count)
    ]


def placed(batches: list[bytearray]) -> bytes:
    """Set the offsets that a log would assign."""
    end_offset = 0
    for batch in batches:
        stamp_offset_and_epoch(batch, 0, end_offset, 0)
        end_offset = read_header(batch).next_offset
    return b"".join(batches)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_read_in_order(codec: Codec) -> None:
    records = [*offsets(50, "note"), NEVER]
    batches = build_batches(records, now_ms=NOW_MS, max_bytes=1_000_000, codec=codec)
    assert len(batches) == 1
    assert read_header(batches[0]).codec == codec
    read = list(read_batches(placed(batches), pytest.fail))
    assert read == [Replayed(record, offset, -1) for offset, record in enumerate(records)]


@pytest.mark.parametrize("max_bytes", [200, 500, 1_000, 10_000])
def test_no_batch_exceeds_the_limit(max_bytes: int) -> None:
    records = offsets(100, "some note")
    batches = build_batches(records, now_ms=NOW_MS, max_bytes=max_bytes)
    assert max(map(len, batches)) <= max_bytes
    read = list(read_batches(placed(batches), pytest.fail))
    assert read == [Replayed(record, offset, -1) for offset, record in enumerate(records)]


def test_the_number_of_batches_is_minimal() -> None:
    one = build_batches(offsets(1), now_ms=NOW_MS, max_bytes=10_000)
    assert len(build_batches(offsets(3), now_ms=NOW_MS, max_bytes=3 * len(one[0]))) == 1


def test_the_error_for_a_large_record_names_its_group_and_the_setting() -> None:
    with pytest.raises(TooLarge, match=r"'g'.*max\.message\.bytes"):
        build_batches(offsets(1, "n" * 300), now_ms=NOW_MS, max_bytes=300)


def test_no_records_make_no_batch() -> None:
    assert build_batches([], now_ms=NOW_MS, max_bytes=100) == []
    assert list(read_batches(b"", pytest.fail)) == []


def test_trailing_bytes_that_are_no_batch_are_reported_and_skipped() -> None:
    batches = build_batches(offsets(2), now_ms=NOW_MS, max_bytes=10_000)
    reports: list[str] = []
    read = list(read_batches(placed(batches) + bytes(100), reports.append))
    assert len(read) == 2
    assert len(reports) == 1
    assert "skipping" in reports[0]


def loaded_from_latest(data: bytes) -> GroupShardState:
    state = GroupShardState(topics=FixedTopics({}), config=GroupConfig)
    latest: Latest = {}
    reports: list[str] = []
    for entry in read_latest(data, latest, reports.append):
        if entry is not None:
            state.load(entry)
    for entry in take_latest(latest, reports.append):
        state.load(entry)
    assert not latest
    return state


def test_only_the_last_offset_of_a_key_is_decoded() -> None:
    one = offsets(1)[0]
    records = [one._replace(value=OffsetValue(n, -1, "", NOW_MS)) for n in range(1_000)]
    latest: Latest = {}
    data = placed(build_batches(records, now_ms=NOW_MS, max_bytes=1_000_000))
    assert [entry for entry in read_latest(data, latest, pytest.fail) if entry is not None] == []
    assert list(take_latest(latest, pytest.fail)) == [Replayed(records[-1], 999, -1)]


DELETED = -1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),  # partition
            st.sampled_from([0, 1, 2, 3, 3, 3, 4, 99, DELETED]),  # version
            st.sampled_from([False, False, True]),  # truncated
            st.sampled_from([None, None, None, 11]),  # in a transaction of this producer
        ),
        min_size=5,
        max_size=30,
    )
)
def test_reading_the_latest_gives_the_same_state_as_reading_all(
    history: list[tuple[int, int, bool, int | None]],
) -> None:
    data = b""
    sequence = 0
    for number, (partition, version, is_cut, producer) in enumerate(history):
        key, _ = encode_record(GroupRecord(OffsetKey("g", "t", partition), None))
        if version == DELETED:
            data += build_batch([Record(number, NOW_MS, key, None)], base_offset=number)
            continue
        value = _value_of(version, number)
        records = [Record(number, NOW_MS, key, value[:-3] if is_cut else value)]
        if producer is None:
            data += build_batch(records, base_offset=number)
        elif version == 0:
            data += build_end_marker_batch(
                commit=not is_cut,
                coordinator_epoch=0,
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=NOW_MS,
                base_offset=number,
            )
        else:
            data += build_batch(
                records,
                base_offset=number,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            sequence += 1
    whole = GroupShardState(topics=FixedTopics({}), config=GroupConfig)
    for entry in read_batches(data, lambda line: None):
        whole.load(entry)
    assert loaded_from_latest(data).snapshot() == whole.snapshot()


def _value_of(version: int, offset: int) -> bytes:
    """Encode an offset in each value version; the last one does not exist."""
    times = bytes(7) + b"\x01"
    tails = {
        0: b"\x00\x01n" + times,
        1: b"\x00\x01n" + times + times,
        2: b"\x00\x01n" + times,
        3: b"\x00\x00\x00\x02\x00\x01n" + times,
        4: b"\x00\x00\x00\x02\x02n" + times + b"\x00",
        99: b"?" * 30,
    }
    return version.to_bytes(2, "big") + offset.to_bytes(8, "big") + tails[version]
