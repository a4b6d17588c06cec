"""Arrow to record batches: order, bounds, timestamps.

Both encoders write the same bytes.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.protocol.batch import check_client_batch, check_header, is_crc_valid, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, iter_records
from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.codec.encode import (
    MAX_OPEN_BYTES,
    EncodedBatch,
    Encoder,
)
from penstock.spark.errors import SparkSourceError

BOTH = pytest.mark.parametrize("path", BulkPath)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_000


def encoder(
    path: BulkPath,
    *,
    codec: Codec = Codec.NONE,
    batch_bytes: int = 1_000_000,
    times: Iterator[int] | None = None,
) -> Encoder:
    clock = (lambda: NOW_MS) if times is None else times.__next__
    return Encoder(codec=codec, batch_bytes=batch_bytes, timestamp_ms=clock, path=path)


def to(*partitions: int) -> npt.NDArray[np.int32]:
    return np.array(partitions, np.int32)


def all_to(partition: int, rows: int) -> npt.NDArray[np.int32]:
    return np.full(rows, partition, np.int32)


def values(*contents: bytes | None) -> pa.Array:
    return pa.array(contents, pa.binary())


def read(batches: Iterable[EncodedBatch]) -> dict[int, list[Record]]:
    """Return records by partition, with consecutive offsets; check every batch."""
    by_partition: dict[int, list[Record]] = {}
    for partition, data, count in batches:
        header = read_header(data)
        check_header(header, len(data))
        check_client_batch(header)
        assert is_crc_valid(data, 0, len(data))
        records = by_partition.setdefault(partition, [])
        new = list(iter_records(data))
        assert len(new) == count == header.record_count
        assert header.max_timestamp == max(record.timestamp_ms for record in new)
        assert header.base_timestamp == new[0].timestamp_ms
        records += [record._replace(offset=len(records) + record.offset) for record in new]
    return by_partition


@BOTH
@pytest.mark.parametrize("codec", Codec)
def test_rows_become_records_in_order(path: BulkPath, codec: Codec) -> None:
    writing = encoder(path, codec=codec)
    headers = pa.array(
        [[("a", b"1"), ("b", None), ("a", b"")], None, [], [("é", b"2")], None], HEADERS
    )
    full = writing.add(
        to(1, 0, 1, 7, 1),
        values(b"k", None, b"", b"key" * 50, None),
        values(b"v", b"", None, b"value" * 500, b"last"),
        headers,
    )
    assert list(full) == []
    assert read(writing.flush()) == {
        0: [Record(0, NOW_MS, None, b"")],
        1: [
            Record(0, NOW_MS, b"k", b"v", (("a", b"1"), ("b", None), ("a", b""))),
            Record(1, NOW_MS, b"", None),
            Record(2, NOW_MS, None, b"last"),
        ],
        7: [Record(0, NOW_MS, b"key" * 50, b"value" * 500, (("é", b"2"),))],
    }
    assert list(writing.flush()) == []


@BOTH
def test_missing_columns_are_null(path: BulkPath) -> None:
    writing = encoder(path)
    assert list(writing.add(to(0, 0), None, None, None)) == []
    assert read(writing.flush()) == {
        0: [Record(0, NOW_MS, None, None), Record(1, NOW_MS, None, None)]
    }
    assert list(writing.add(to(), None, values(), None)) == []
    assert list(writing.flush()) == []


@BOTH
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_every_type_that_spark_sends_is_read_even_in_slices(
    path: BulkPath, kind: pa.DataType
) -> None:
    texts = pa.array(["no", "k", None, "", "key", "no"], kind)[1:5]
    chunked = pa.chunked_array([pa.array(["a"], kind), pa.array([None, "b", "c"], kind)])
    items: list[object] = [[("no", b"")], [("h", b"1")], None, [], [("i", None)]]
    headers = pa.array(items, HEADERS)[1:]
    writing = encoder(path)
    assert list(writing.add(all_to(0, 4), texts, chunked, headers)) == []
    assert read(writing.flush())[0] == [
        Record(0, NOW_MS, b"k", b"a", (("h", b"1"),)),
        Record(1, NOW_MS, None, None),
        Record(2, NOW_MS, b"", b"b"),
        Record(3, NOW_MS, b"key", b"c", (("i", None),)),
    ]


def test_headers_under_a_null_list_are_ignored() -> None:
    items = pa.array([("hidden", b"x"), ("shown", b"y")], HEADERS.value_type)
    offsets = pa.array([0, 1, 2], pa.int32())
    headers = pa.ListArray.from_arrays(offsets, items, mask=pa.array([True, False]))
    writing = encoder(BulkPath.PLAIN)
    assert list(writing.add(to(0, 0), None, None, headers)) == []
    assert [record.headers for record in read(writing.flush())[0]] == [(), (("shown", b"y"),)]


@BOTH
def test_header_without_a_key_is_rejected(path: BulkPath) -> None:
    headers = pa.array([[("a", b"1"), (None, b"2")]], HEADERS)
    with pytest.raises(SparkSourceError, match="null key"):
        list(encoder(path).add(to(0), None, None, headers))


@BOTH
def test_batches_respect_their_size_limit(path: BulkPath) -> None:
    writing = encoder(path, batch_bytes=1_000)
    contents = [b"%04d" % number * 20 for number in range(100)]
    sent = list(writing.add(to(*[0, 1] * 50), None, values(*contents), None))
    sent += writing.flush()
    assert [len(batch.data) for batch in sent if len(batch.data) > 1_000] == []
    by_partition = read(sent)
    assert [record.value for record in by_partition[0]] == contents[::2]
    assert [record.value for record in by_partition[1]] == contents[1::2]
    # Ten records of 87 or 88 bytes and the header fit in 1,000, so the limit is used up.
    assert [batch.records for batch in sent if batch.partition == 0] == [10, 10, 10, 10, 10]


@BOTH
def test_oversized_record_gets_its_own_batch_in_order(path: BulkPath) -> None:
    large = b"L" * 5_000
    headers = pa.array([None, None, [("h" * 3_000, b"x" * 3_000)], None], HEADERS)
    writing = encoder(path, batch_bytes=1_000)
    sent = list(writing.add(all_to(0, 4), None, values(b"a", large, b"b", b"c"), headers))
    sent += writing.flush()
    assert [batch.records for batch in sent] == [1, 1, 1, 1]
    records = read(sent)[0]
    assert [record.value for record in records] == [b"a", large, b"b", b"c"]
    assert records[2].headers == (("h" * 3_000, b"x" * 3_000),)


@BOTH
def test_rows_of_one_call_share_its_timestamp(path: BulkPath) -> None:
    times = [NOW_MS, NOW_MS + 70, NOW_MS - 10**9, NOW_MS + 2**40]
    writing = encoder(path, times=iter(times))
    for number in range(4):
        assert list(writing.add(to(0), None, values(b"%d" % number), None)) == []
    records = read(writing.flush())[0]
    assert [record.timestamp_ms for record in records] == times


@BOTH
def test_incompressible_data_respects_the_size_limit(path: BulkPath) -> None:
    noise = np.random.default_rng(1).bytes(50_000)
    for codec in Codec:
        writing = encoder(path, codec=codec, batch_bytes=10_000)
        contents = [noise[at : at + 500] for at in range(0, 50_000, 500)]
        sent = list(writing.add(all_to(0, 100), None, values(*contents), None))
        sent += writing.flush()
        assert max(len(batch.data) for batch in sent) <= 10_000
        assert [record.value for record in read(sent)[0]] == contents


def test_open_batches_of_many_partitions_are_bounded() -> None:
    writing = encoder(BulkPath.COMPILED, batch_bytes=2_000_000)
    content = bytes(1_000_000)
    rows = MAX_OPEN_BYTES // len(content) + 2
    partitions = np.arange(rows, dtype=np.int32)
    sent = list(writing.add(partitions, None, pa.array([content] * rows, pa.binary()), None))
    assert sorted(batch.partition for batch in sent) == list(range(rows))
    assert list(writing.flush()) == []


@BOTH
def test_negative_partition_is_rejected(path: BulkPath) -> None:
    with pytest.raises(ValueError, match="partition -1"):
        list(encoder(path).add(to(0, -1), None, values(b"a", b"b"), None))


@BOTH
def test_partitions_beyond_16_bits_stay_distinct(path: BulkPath) -> None:
    writing = encoder(path)
    assert list(writing.add(to(70_000, 4_464, 70_000), None, values(b"a", b"b", b"c"), None)) == []
    by_partition = read(writing.flush())
    assert {at: [record.value for record in records] for at, records in by_partition.items()} == {
        70_000: [b"a", b"c"],
        4_464: [b"b"],
    }
