"""Bulk decoding and encoding against `protocol.records`: any records survive a round trip, and
kernels, plain Python and `iter_records` agree on corrupt bytes."""

import ctypes
import mmap
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.properties.test_records import HEADERS, OPTIONAL_BYTES, mutate, record_lists, seeds
from tests.unit.spark.codec.columns_samples import Row, decoder, expected_rows, rows_of

from penstock.protocol.batch import CorruptBatch, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.codec.encode import EncodedBatch, Encoder

EXAMPLES = scaled(test=10, verify=1_000, release=30_000)
FUZZ_INPUTS = scaled(test=800, verify=100_000, release=5_000_000)
FAR = 2**63 - 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    lists=st.lists(record_lists(), min_size=1, max_size=4),
    codecs=st.lists(st.sampled_from(Codec), min_size=4, max_size=4),
    append_times=st.lists(st.none() | st.integers(0, 2**50), min_size=4, max_size=4),
    bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_kernels_and_plain_python_decode_any_records_to_the_same_rows(
    lists: list[list[Record]],
    codecs: list[Codec],
    append_times: list[int | None],
    bounds: tuple[int, int],
) -> None:
    batches = consecutive_batches(lists, codecs, append_times)
    rows = [row for batch in batches for row in expected_rows(batch)]
    offsets = [row[4] for row in rows]
    start, end = (offsets[min(at, len(offsets) - 1)] for at in sorted(bounds))
    expected = [row for row in rows if start <= row[4] < end]
    fetched = memoryview(b"".join(batches))
    for path in BulkPath:
        decoded = decoder(path=path).decode(fetched, start=start, end=end)
        assert rows_of(decoded) == expected
        assert decoded.next_offset == end


def consecutive_batches(
    lists: Sequence[list[Record]], codecs: Sequence[Codec], append_times: Sequence[int | None]
) -> list[bytearray]:
    batches = []
    base_offset = 0
    for records, codec, time in zip(lists, codecs, append_times, strict=False):
        first = records[0].offset
        moved = [record._replace(offset=base_offset + record.offset - first) for record in records]
        batches.append(
            build_batch(moved, base_offset=base_offset, codec=codec, append_time_ms=time)
        )
        base_offset = moved[-1].offset + 1
    return batches


class Guarded:
    """Memory that ends at an unreadable page, so that a read beyond the content is fatal."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self._view = memoryview(self._pages)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        beyond = ctypes.c_void_p(start + mmap.PAGESIZE)
        assert libc.mprotect(beyond, mmap.PAGESIZE, 0) == 0

    def put(self, content: bytes | bytearray) -> memoryview:
        assert len(content) <= mmap.PAGESIZE
        start = mmap.PAGESIZE - len(content)
        self._view[start : mmap.PAGESIZE] = content
        return self._view[start : mmap.PAGESIZE]


def outcome(path: BulkPath, fetched: memoryview) -> list[Row] | None:
    """None if the bytes are rejected; any other error fails the test."""
    try:
        return rows_of(decoder(path=path, check_crc=False).decode(fetched, start=0, end=FAR))
    except CorruptBatch:
        return None


def expected_outcome(batch: bytearray) -> list[Row] | None:
    try:
        return expected_rows(batch)
    except CorruptBatch:
        return None


@pytest.mark.timeout(scaled(test=300, verify=1_800, release=14_400))
def test_kernels_and_plain_python_agree_on_corrupt_bytes_and_read_nothing_beyond() -> None:
    rng = random.Random(20_261_117)
    corpus, guarded = seeds(), Guarded()
    rejected = accepted = 0
    for _ in range(FUZZ_INPUTS):
        batch = mutate(rng, rng.choice(corpus))[: mmap.PAGESIZE]
        fetched = guarded.put(batch)
        rows = outcome(BulkPath.PLAIN, fetched)
        assert outcome(BulkPath.COMPILED, fetched) == rows, batch.hex()
        assert_same_after(rng.choice(corpus), batch, guarded)
        if not is_one_data_batch(batch):
            continue
        assert rows == expected_outcome(batch), batch.hex()
        rejected, accepted = rejected + (rows is None), accepted + (rows is not None)
    # Both results must be common, or the mutations do not reach deep enough.
    assert rejected > FUZZ_INPUTS * 0.05
    assert accepted > FUZZ_INPUTS * 0.05


def assert_same_after(valid: bytes, batch: bytearray, guarded: Guarded) -> None:
    """A corrupt batch that is decoded together with a valid one before it."""
    if len(batch) >= 8:
        batch = batch.copy()
        batch[0:8] = read_header(valid).next_offset.to_bytes(8, "big")
    fetched = guarded.put((valid + batch)[: mmap.PAGESIZE])
    assert outcome(BulkPath.COMPILED, fetched) == outcome(BulkPath.PLAIN, fetched), batch.hex()


def is_one_data_batch(batch: bytearray) -> bool:
    """Whether the bytes claim to be exactly one batch, as `iter_records` requires."""
    try:
        header = read_header(batch)
    except CorruptBatch:
        return False
    return header.size == len(batch) and not header.is_control and header.base_offset < FAR


ROWS = st.lists(
    st.tuples(st.integers(0, 4), OPTIONAL_BYTES, OPTIONAL_BYTES, st.none() | HEADERS), max_size=30
)
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    calls=st.lists(ROWS, max_size=4),
    codec=st.sampled_from(Codec),
    batch_bytes=st.integers(62, 600),
    times=st.lists(st.integers(0, 2**62), min_size=4, max_size=4),
)
def test_any_rows_survive_encoding_and_both_encoders_write_the_same_bytes(
    calls: list[list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]],
    codec: Codec,
    batch_bytes: int,
    times: list[int],
) -> None:
    written = {}
    for path in BulkPath:
        clock = iter(times)
        encoder = Encoder(
            codec=codec, batch_bytes=batch_bytes, timestamp_ms=clock.__next__, path=path
        )
        written[path] = [batch for rows in calls for batch in add(encoder, rows)]
        written[path] += encoder.flush()
    assert written[BulkPath.COMPILED] == written[BulkPath.PLAIN]
    for partition in range(5):
        records = [
            (record.timestamp_ms, record.key, record.value, record.headers)
            for batch in written[BulkPath.PLAIN]
            if batch.partition == partition
            for record in iter_records(batch.data)
        ]
        assert records == [
            (time, key, value, headers or ())
            for time, rows in zip(times, calls, strict=False)
            for chosen, key, value, headers in rows
            if chosen == partition
        ]
    for batch in written[BulkPath.PLAIN]:
        assert len(batch.data) <= batch_bytes or batch.records == 1


def add(
    encoder: Encoder,
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]],
) -> list[EncodedBatch]:
    partitions, keys, values, headers = zip(*rows, strict=True) if rows else ((),) * 4
    return list(
        encoder.add(
            np.array(partitions, np.int32),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers, HEADERS_TYPE),
        )
    )
