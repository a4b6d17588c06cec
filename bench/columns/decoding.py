"""Fetched batches to Arrow: values of 100 bytes, keys of 8 bytes, batches as small as those of Java
producers and as large as librdkafka's."""

from collections.abc import Sequence
from typing import Any

from aiokafka.record import MemoryRecords  # type: ignore[import-untyped]

from bench.columns.rates import Implementation, compare
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import iter_headers, stamp_offset_and_epoch
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, RecordHeaders, build_batch, iter_records
from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.codec.decode import COLUMNS, Decoder

ROWS = 100_000
SLOW_ROWS = 5_000
SEVEN = COLUMNS[:7]
HEADERS: RecordHeaders = (("trace", b"0123456789abcdef"), ("source", b"web"))


def measure_all() -> list[dict[str, Any]]:
    return [
        measure("seven columns", SEVEN, batch_rows=5_000),
        measure("seven columns, small batches", SEVEN, batch_rows=140),
        measure("value alone", ["value"], batch_rows=5_000),
        measure("two headers a record", COLUMNS, batch_rows=5_000, headers=HEADERS),
        measure("lz4", SEVEN, batch_rows=5_000, codec=Codec.LZ4),
        measure("lz4, small batches", SEVEN, batch_rows=140, codec=Codec.LZ4),
        measure("zstd", SEVEN, batch_rows=5_000, codec=Codec.ZSTD),
        measure("values of 1 KiB", SEVEN, batch_rows=500, value_bytes=1024),
    ]


def measure(
    name: str,
    columns: Sequence[str],
    *,
    batch_rows: int,
    codec: Codec = Codec.NONE,
    headers: RecordHeaders = (),
    value_bytes: int = 100,
) -> dict[str, Any]:
    batch = build_batch(_records(batch_rows, headers, value_bytes), codec=codec)
    many, few = _repeat(batch, ROWS // batch_rows), _repeat(batch, SLOW_ROWS // batch_rows)
    rows, few_rows = ROWS // batch_rows * batch_rows, SLOW_ROWS // batch_rows * batch_rows
    measured = compare(
        "compiled",
        compiled=Implementation(rows, lambda: _decode(many, columns, BulkPath.COMPILED, rows)),
        plain=Implementation(few_rows, lambda: _decode(few, columns, BulkPath.PLAIN, few_rows)),
        protocol_records=Implementation(few_rows, lambda: _walk(few)),
        aiokafka=Implementation(few_rows, lambda: _walk_with_aiokafka(few)),
    )
    return {"what": name, "rows_per_batch": batch_rows, **measured}


def _records(count: int, headers: RecordHeaders, value_bytes: int) -> list[Record]:
    return [
        Record(
            number,
            1_700_000_000_000 + number // 10,
            b"%08d" % (number * 7919 % 10**8),
            (
                b'{"user": %d, "page": "/shop/%d", "ms": %d}' % (number, number % 97, number % 1013)
            ).ljust(value_bytes, b"."),
            headers,
        )
        for number in range(count)
    ]


def _repeat(batch: bytearray, times: int) -> memoryview:
    """The batch repeated, at consecutive offsets."""
    repeated = batch * times
    for position, header in iter_headers(repeated):
        number = position // header.size
        stamp_offset_and_epoch(repeated, position, number * header.record_count, 0)
    return memoryview(bytes(repeated))


def _decode(fetched: memoryview, columns: Sequence[str], path: BulkPath, rows: int) -> None:
    decoder = Decoder(TopicPartition("orders", 0), columns, read_committed=False, path=path)
    decoded = decoder.decode(fetched, start=0, end=2**62)
    assert sum(len(batch) for batch in decoded.batches) == rows


def _walk(fetched: memoryview) -> None:
    for position, header in iter_headers(fetched):
        for _ in iter_records(fetched[position : position + header.size]):
            pass


def _walk_with_aiokafka(fetched: memoryview) -> None:
    batches = MemoryRecords(bytes(fetched))
    while batches.has_next():
        for record in batches.next_batch():
            _ = record.key, record.value  # these attributes are decoded on access
