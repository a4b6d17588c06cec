"""Encoded records for tests of the walk, valid and damaged, and the reader as a model."""

from typing import NamedTuple

from hypothesis import strategies as st

from penstock.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    CorruptBatch,
    check_header,
    read_header,
)
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.protocol.varint import MAX_INT64, MIN_INT64, encode_varlong

_EDGES = [0, 1, -1, -2, 63, 64, 2**14, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1]
# Varints at the limits of their types, and some that no encoder writes.
HOSTILE = [
    *(encode_varlong(number) for number in _EDGES),
    encode_varlong(MIN_INT64),
    b"\x80" * 4 + b"\x00",
    b"\xff" * 4 + b"\x0f",
    b"\xff" * 4 + b"\x10",
    b"\xff" * 4 + b"\x7f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x02",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 12,
]


class Walk(NamedTuple):
    data: bytes
    records: int


_BYTES = st.none() | st.binary(max_size=4) | st.binary(min_size=64, max_size=70)
_HEADERS = st.lists(st.tuples(st.text(max_size=3), _BYTES), max_size=2).map(tuple)
_TIMES = st.integers(0, 200) | st.sampled_from([0, 2**31, 2**62, MAX_INT64])


@st.composite
def encoded_records(draw: st.DrawFn) -> Walk:
    rows = draw(st.lists(st.tuples(_TIMES, _BYTES, _BYTES, _HEADERS), min_size=1, max_size=4))
    batch = build_batch([Record(index, *row) for index, row in enumerate(rows)])
    return Walk(bytes(batch[HEADER_BYTES:]), len(rows))


def damaged(data: bytes, draw: st.DataObject) -> bytes:
    """Replace some bytes by a hostile varint or other bytes, or truncate the records."""
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, min(len(data), start + 12)))
    replacement = draw.draw(st.sampled_from(HOSTILE) | st.binary(max_size=3))
    return data[:start] + replacement + data[end:]


def model_verdict(data: bytes, count: int) -> bool:
    """Return whether the reader reads that many records, at offsets 0, 1, 2 and so on."""
    batch = bytearray(build_batch([Record(0, 0, None, None)])[:HEADER_BYTES] + data)
    header = read_header(batch)._replace(
        batch_length=len(batch) - LOG_OVERHEAD, record_count=count, last_offset_delta=count - 1
    )
    HEADER.pack_into(batch, 0, *header)
    try:
        check_header(header, len(batch))
        offsets = [record.offset for record in iter_records(batch)]
    except CorruptBatch:
        return False
    return offsets == list(range(count))
