"""A few records of a batch: those of the whole batch, whatever lies between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.batch import CorruptBatch
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, iter_records, select_records

BASE_OFFSET = 1_000
contents = st.tuples(
    st.none() | st.binary(max_size=3),
    st.none() | st.binary(max_size=300) | st.just(bytes(20_000)),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)


@given(
    st.lists(contents, min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.data(),
)
def test_selected_records_are_those_of_the_whole_batch(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    wanted: set[int],
    codec: Codec,
    data: st.DataObject,
) -> None:
    """Also where compaction has removed some."""
    removed = data.draw(st.sets(st.integers(0, len(records) - 2))) if len(records) > 1 else set()
    kept = [
        Record(BASE_OFFSET + index, 5 + index, key, value, tuple(headers))
        for index, (key, value, headers) in enumerate(records)
        if index not in removed
    ]
    last_delta = len(records) - 1
    batch = build_batch(kept, base_offset=BASE_OFFSET, last_offset_delta=last_delta, codec=codec)
    offsets = sorted(BASE_OFFSET + index for index in wanted if index <= last_delta)
    expected = [record for record in iter_records(batch) if record.offset in offsets]
    assert list(select_records(batch, offsets)) == expected


def test_a_batch_that_is_cut_off_inside_is_corrupt() -> None:
    batch = build_batch([Record(index, 5, None, b"v") for index in range(3)])
    batch[61] = 0x7E  # the length of the first record: it leaves the batch
    with pytest.raises(CorruptBatch):
        list(select_records(batch, [2]))
