"""Records and rows for tests of the bulk codec; `iter_records` defines what decoding must give."""

from typing import Any

import pyarrow as pa

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer, read_header
from penstock.protocol.records import Record, iter_records
from penstock.spark.codec.decode import COLUMNS, DecodedFetch, Decoder

TP = TopicPartition("orders", 3)
RECORDS = [
    Record(0, 1_000, b"key", b"value" * 30, (("name", b"x"), ("none", None), ("name", b""))),
    Record(1, -1, None, b""),
    Record(2, 999, b"", None, (("", b"only"),)),
    Record(3, 0, None, None),
    Record(300, 10**12, b"k" * 70, b"v" * 9_000),
]

Row = tuple[Any, ...]


def rows_of(decoded: DecodedFetch) -> list[Row]:
    """Return key, value, topic, partition, offset, microseconds, timestamp type and headers."""
    return [row for batch in decoded.batches for row in _rows(batch)]


def _rows(batch: pa.RecordBatch) -> list[Row]:
    batch.validate(full=True)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    lists = {name: column.to_pylist() for name, column in columns.items()}
    lists["headers"] = [
        None if items is None else tuple((item["key"], item["value"]) for item in items)
        for items in lists["headers"]
    ]
    return list(zip(*(lists[name] for name in COLUMNS), strict=True))


def expected_rows(batch: Buffer) -> list[Row]:
    """Return the batch's records as rows."""
    timestamp_type = int(read_header(batch).is_append_time)
    return [as_row(record, timestamp_type) for record in iter_records(batch)]


def as_row(record: Record, timestamp_type: int = 0) -> Row:
    microseconds = max(-(2**63), min(2**63 - 1, record.timestamp_ms * 1000))
    headers = tuple((_readable(key), value) for key, value in record.headers) or None
    return (
        record.key,
        record.value,
        *TP,
        record.offset,
        microseconds,
        timestamp_type,
        headers,
    )


def _readable(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decoder(**options: Any) -> Decoder:
    """Build a decoder of all columns; read_uncommitted by default."""
    return Decoder(TP, COLUMNS, **{"read_committed": False, **options})
