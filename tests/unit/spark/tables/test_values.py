"""Records to rows and dead letters, for every value format."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa

from penstock.spark.codec.row_columns import arrow_schema
from penstock.spark.tables.spec import TableFormat, TableSpec, ValueKind
from penstock.spark.tables.table_schema import dead_letter_schema, value_fields
from penstock.spark.tables.values import READ_COLUMNS, Shaped, Shaper

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def encoded(row: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, AVRO, row)
    return buffer.getvalue()


def shape(spec: TableSpec, values: list[bytes | None]) -> Shaped:
    """Convert records at offsets 0, 1, ... with these values."""
    columns: dict[str, list[Any]] = {name: [None] * len(values) for name in READ_COLUMNS}
    columns |= {"offset": list(range(len(values))), "value": values}
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow_schema(READ_COLUMNS))
    return Shaper(spec, value_fields(spec)).shape(batch)


def test_raw_values_are_never_bad() -> None:
    spec = TableSpec(topic="t", format=TableFormat.PARQUET)
    shaped = shape(spec, [b"\xff", None])
    assert shaped.rows.column("_value").to_pylist() == [b"\xff", None]
    assert shaped.dead.num_rows == 0
    assert shaped.dead.schema == dead_letter_schema()


def test_values_that_are_not_utf8_are_dead_letters() -> None:
    spec = TableSpec(topic="t", format=TableFormat.PARQUET, value=ValueKind.TEXT, keeps_value=False)
    shaped = shape(spec, [b"a", b"\xff", None, "ä".encode()])
    assert shaped.rows.column("value").to_pylist() == ["a", None, "ä"]
    assert shaped.rows.column("_offset").to_pylist() == [0, 2, 3]
    assert "_value" not in shaped.rows.column_names
    (letter,) = shaped.dead.to_pylist()
    assert (letter["_offset"], letter["_value"]) == (1, b"\xff")
    assert letter["_error"] == "not UTF-8 text"


def test_avro_values_become_columns() -> None:
    spec = TableSpec(topic="t", format=TableFormat.DELTA, value=ValueKind.AVRO, avro=AVRO)
    good = encoded({"n": 7, "at": 1_700_000_000_000, "tags": ["x"]})
    shaped = shape(spec, [good, None, good + b"more", b""])
    first, second = shaped.rows.select(["n", "at", "tags"]).to_pylist()
    assert (first["n"], first["tags"]) == (7, ["x"])
    assert first["at"].timestamp() == 1_700_000_000
    assert second == {"n": None, "at": None, "tags": None}
    letters = shaped.dead.to_pylist()
    assert [letter["_offset"] for letter in letters] == [2, 3]
    assert letters[0]["_error"] == "4 trailing bytes"


def test_schema_registry_prefix_is_skipped() -> None:
    spec = TableSpec(
        topic="t", format=TableFormat.DELTA, value=ValueKind.AVRO, avro=AVRO, skip_bytes=5
    )
    value = encoded({"n": 1, "at": 0, "tags": []})
    shaped = shape(spec, [b"\x00\x00\x00\x00\x07" + value, value])
    assert shaped.rows.column("n").to_pylist() == [1]
    assert "a registry's schema id" in shaped.dead.column("_error")[0].as_py()
