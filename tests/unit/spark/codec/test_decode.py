"""Record batches to Arrow, with kernels and in plain Python."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)
from tests.unit.spark.codec.columns_samples import (
    RECORDS,
    TP,
    as_row,
    decoder,
    expected_rows,
    rows_of,
)

from penstock.client.data_calls import AbortedTransactionStart
from penstock.model.ids import Offset, ProducerId
from penstock.protocol.batch import CorruptBatch, UnsupportedMagic
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.codec.decode import COLUMNS, Decoder, arrow_schema
from penstock.spark.codec.row_columns import MAX_CHUNK_BYTES, MAX_ROWS
from penstock.spark.errors import SparkSourceError

BOTH = pytest.mark.parametrize("path", BulkPath)
FAR = 2**62
SPARK_HEADER = StructType().add("key", StringType()).add("value", BinaryType())
SPARK_SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
    .add("headers", ArrayType(SPARK_HEADER))
)
MIB = 1024 * 1024


def records(first: int, count: int) -> list[Record]:
    return [Record(offset, 5_000, None, b"v%d" % offset) for offset in range(first, first + count)]


def batches(*parts: bytes | bytearray) -> memoryview:
    return memoryview(b"".join(parts))


def data(first: int, count: int) -> bytearray:
    return build_batch(records(first, count), base_offset=first)


@BOTH
@pytest.mark.parametrize("codec", Codec)
def test_rows_are_the_records(path: BulkPath, codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    decoded = decoder(path=path).decode(memoryview(batch), start=0, end=FAR)
    assert rows_of(decoded) == expected_rows(batch) == [as_row(record) for record in RECORDS]
    assert decoded.next_offset == 301


@BOTH
def test_schema_is_the_one_that_spark_requires(path: BulkPath) -> None:
    wanted = to_arrow_schema(SPARK_SCHEMA, timezone="UTC")
    decoded = decoder(path=path).decode(memoryview(build_batch(RECORDS)), start=0, end=FAR)
    assert [batch.schema for batch in decoded.batches] == [wanted]
    assert arrow_schema(COLUMNS) == wanted


@BOTH
@pytest.mark.parametrize(
    "columns", [["value"], ["headers", "key"], ["topic"], ["timestampType", "offset", "partition"]]
)
def test_only_requested_columns_are_decoded_in_their_order(
    path: BulkPath, columns: list[str]
) -> None:
    batch = memoryview(build_batch(RECORDS))
    whole = decoder(path=path).decode(batch, start=0, end=FAR).batches
    some = Decoder(TP, columns, read_committed=False, path=path)
    chosen = some.decode(batch, start=0, end=FAR).batches
    assert pa.Table.from_batches(chosen) == pa.Table.from_batches(whole).select(columns)


@pytest.mark.parametrize("columns", [[], ["value", "valeu"]])
def test_unknown_columns_are_rejected(columns: list[str]) -> None:
    with pytest.raises(SparkSourceError, match="choose from key, value, topic"):
        Decoder(TP, columns, read_committed=False)


@BOTH
@pytest.mark.parametrize(
    ("start", "end", "offsets", "next_offset"),
    [
        (0, FAR, range(10, 30), 30),
        (10, 30, range(10, 30), 30),
        (13, 24, range(13, 24), 24),
        (15, 17, range(15, 17), 17),
        (20, 21, range(20, 21), 21),
        (25, 29, range(25, 29), 29),
        (0, 10, range(0), 10),
        (0, 5, range(0), 5),
        (30, 40, range(0), 30),
        (35, 40, range(0), 35),
    ],
)
def test_only_offsets_in_the_range_are_decoded(
    path: BulkPath, start: int, end: int, offsets: Sequence[int], next_offset: int
) -> None:
    fetched = batches(data(10, 8), data(18, 7), data(25, 5))
    decoded = decoder(path=path).decode(fetched, start=start, end=end)
    assert [row[4] for row in rows_of(decoded)] == list(offsets)
    assert decoded.next_offset == next_offset


@BOTH
def test_incomplete_batch_is_ignored(path: BulkPath) -> None:
    first, second = data(0, 3), data(3, 3)
    for cut in range(len(second)):
        decoded = decoder(path=path).decode(batches(first, second[:cut]), start=0, end=FAR)
        assert [row[4] for row in rows_of(decoded)] == [0, 1, 2]
        assert decoded.next_offset == 3
    assert decoder(path=path).decode(memoryview(b""), start=7, end=9) == ([], 7)


@BOTH
def test_gaps_and_empty_batches_are_skipped(path: BulkPath) -> None:
    emptied = build_batch([], base_offset=20, last_offset_delta=9)
    compacted = build_batch([Record(33, 1, b"k", b"v")], base_offset=30, last_offset_delta=9)
    fetched = batches(data(0, 2), emptied, compacted)
    decoded = decoder(path=path).decode(fetched, start=0, end=FAR)
    assert [row[4] for row in rows_of(decoded)] == [0, 1, 33]
    assert decoded.next_offset == 40
    assert decoder(path=path).decode(fetched, start=0, end=25).next_offset == 25


def transactional(first: int, producer: int) -> bytearray:
    return build_batch(
        records(first, 2),
        base_offset=first,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def end_marker(offset: int, producer: int, *, commit: bool) -> bytearray:
    return build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=offset,
    )


TRANSACTIONS = batches(
    transactional(0, 1),
    transactional(2, 2),
    data(4, 1),
    transactional(5, 1),
    end_marker(7, 1, commit=False),
    transactional(8, 1),
    end_marker(10, 2, commit=True),
    end_marker(11, 1, commit=True),
    transactional(12, 2),
    end_marker(14, 2, commit=False),
)
ABORTED = [
    AbortedTransactionStart(ProducerId(2), Offset(12)),
    AbortedTransactionStart(ProducerId(1), Offset(0)),
]


@BOTH
@pytest.mark.parametrize(
    ("read_committed", "offsets"),
    [(True, [2, 3, 4, 8, 9]), (False, [0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 13])],
)
def test_aborted_data_is_hidden_with_read_committed(
    path: BulkPath, read_committed: bool, offsets: list[int]
) -> None:
    reading = decoder(path=path, read_committed=read_committed)
    decoded = reading.decode(TRANSACTIONS, start=0, end=FAR, aborted=ABORTED)
    assert [row[4] for row in rows_of(decoded)] == offsets
    assert decoded.next_offset == 15


@BOTH
def test_fetch_inside_an_aborted_transaction_hides_the_rest_of_it(
    path: BulkPath,
) -> None:
    fetched = batches(transactional(5, 1), end_marker(7, 1, commit=False), transactional(8, 1))
    decoded = decoder(path=path, read_committed=True).decode(
        fetched, start=6, end=FAR, aborted=[AbortedTransactionStart(ProducerId(1), Offset(0))]
    )
    assert [row[4] for row in rows_of(decoded)] == [8, 9]


@BOTH
def test_log_append_time_applies_to_every_record_and_has_type_1(path: BulkPath) -> None:
    log_append_time = build_batch(records(2, 2), base_offset=2, append_time_ms=77)
    fetched = batches(data(0, 2), log_append_time, data(4, 1))
    rows = rows_of(decoder(path=path).decode(fetched, start=0, end=FAR))
    assert [row[4:7] for row in rows] == [
        (0, 5_000_000, 0),
        (1, 5_000_000, 0),
        (2, 77_000, 1),
        (3, 77_000, 1),
        (4, 5_000_000, 0),
    ]


@BOTH
def test_timestamps_are_clamped_to_microseconds_in_64_bits(path: BulkPath) -> None:
    last = (2**63 - 1) // 1000
    times = [-1, 0, last, last + 1, 2**63 - 1, -last, -last - 1, -(2**63)]
    batch = build_batch([Record(at, time, None, None) for at, time in enumerate(times)])
    rows = rows_of(decoder(path=path).decode(memoryview(batch), start=0, end=FAR))
    most = 2**63 - 1
    expected = [-1000, 0, last * 1000, most, most, -last * 1000, -most - 1, -most - 1]
    assert [row[5] for row in rows] == expected


@BOTH
def test_delete_horizon_does_not_change_record_timestamps(path: BulkPath) -> None:
    batch = build_batch(RECORDS, delete_horizon_ms=99_000)
    decoded = decoder(path=path).decode(memoryview(batch), start=0, end=FAR)
    assert rows_of(decoded) == [as_row(record) for record in RECORDS]


@BOTH
def test_invalid_utf_8_in_header_keys_is_replaced(path: BulkPath) -> None:
    odd = Record(0, 0, None, None, (("\udcff\udcc3", b"a"), ("é", b"b")))
    decoded = decoder(path=path).decode(memoryview(build_batch([odd])), start=0, end=FAR)
    assert rows_of(decoded)[0][7] == (("\ufffd\ufffd", b"a"), ("é", b"b"))


@BOTH
def test_large_batch_is_split_into_chunks_of_bounded_rows(path: BulkPath) -> None:
    count = 2 * MAX_ROWS + 10
    batch = build_batch(records(0, count), codec=Codec.LZ4)
    decoded = decoder(path=path).decode(memoryview(batch), start=5, end=count - 1)
    assert [len(chunk) for chunk in decoded.batches] == [MAX_ROWS, MAX_ROWS, 4]
    table = pa.Table.from_batches(decoded.batches)
    assert table["offset"].to_pylist() == list(range(5, count - 1))
    assert table["value"].to_pylist() == [b"v%d" % offset for offset in range(5, count - 1)]


@BOTH
def test_few_rows_of_a_large_batch_hold_only_their_own_bytes(path: BulkPath) -> None:
    fetched = memoryview(build_batch(records(0, 20_000)))
    (chunk,) = decoder(path=path).decode(fetched, start=7, end=17).batches
    assert len(chunk) == 10
    assert len(chunk.serialize()) < 2_000
    assert chunk.nbytes < 1_000


@BOTH
def test_chunks_are_bounded_in_bytes(path: BulkPath) -> None:
    large = [
        build_batch([Record(offset, 1, None, bytes(6 * MIB))], base_offset=offset)
        for offset in range(5)
    ]
    decoded = decoder(path=path).decode(batches(*large), start=0, end=FAR)
    assert [len(chunk) for chunk in decoded.batches] == [2, 2, 1]
    assert all(chunk.nbytes < MAX_CHUNK_BYTES + MIB for chunk in decoded.batches)


@BOTH
def test_fetch_that_decodes_to_too_many_bytes_is_decoded_in_parts(path: BulkPath) -> None:
    packed = [
        build_batch([Record(offset, 1, None, bytes(MIB // 2))], base_offset=offset)
        for offset in range(40)
    ]
    bounded = decoder(path=path, max_bytes=8 * MIB)
    seen: list[int] = []
    start, calls = 0, 0
    while start < 40:
        decoded = bounded.decode(batches(*packed), start=start, end=FAR)
        assert sum(batch.nbytes for batch in decoded.batches) < 8 * MIB + MAX_CHUNK_BYTES
        seen += [row[4] for row in rows_of(decoded)]
        start = decoded.next_offset
        calls += 1
    assert seen == list(range(40))
    assert calls == 2


CORRUPT_AT = "cannot read orders-3 at offset 3: "


@BOTH
def test_crc_mismatch_names_partition_and_offset(path: BulkPath) -> None:
    second = data(3, 3)
    second[-2] ^= 1
    with pytest.raises(CorruptBatch, match=CORRUPT_AT + "CRC"):
        decoder(path=path).decode(batches(data(0, 3), second), start=0, end=FAR)


@BOTH
def test_corruption_beyond_the_range_is_ignored(path: BulkPath) -> None:
    second = data(3, 3)
    second[-2] ^= 1
    decoded = decoder(path=path).decode(batches(data(0, 3), second), start=0, end=3)
    assert len(rows_of(decoded)) == 3


@BOTH
def test_corrupt_records_are_detected_without_crc_check(path: BulkPath) -> None:
    second = data(3, 3)
    second[61] ^= 0x40  # the first record's length
    with pytest.raises(CorruptBatch, match=CORRUPT_AT + ".*record"):
        decoder(path=path, check_crc=False).decode(batches(data(0, 3), second), start=0, end=FAR)


@BOTH
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_corrupt_compression_names_partition_and_offset(path: BulkPath, codec: Codec) -> None:
    second = build_batch(records(3, 50), base_offset=3, codec=codec)
    second[70:80] = bytes(10)
    with pytest.raises(CorruptBatch, match=CORRUPT_AT + f".*{codec.name.lower()}"):
        decoder(path=path, check_crc=False).decode(batches(data(0, 3), second), start=0, end=FAR)


@BOTH
def test_other_magic_and_decreasing_offsets_are_corrupt(path: BulkPath) -> None:
    old = data(3, 3)
    old[16] = 1
    with pytest.raises(CorruptBatch, match=CORRUPT_AT + ".*magic 1"):
        decoder(path=path).decode(batches(data(0, 3), old), start=0, end=FAR)
    with pytest.raises(CorruptBatch, match=CORRUPT_AT + ".*lower offset 2"):
        decoder(path=path).decode(batches(data(0, 3), data(2, 3)), start=0, end=FAR)
    assert issubclass(UnsupportedMagic, CorruptBatch)
