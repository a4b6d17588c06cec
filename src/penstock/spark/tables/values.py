"""Converts records to rows of a table and dead letters.

Pure. Runs in tasks. Invariant: every record becomes either a row or a dead letter with its reason.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.json_values import ParsedValues, parse_json
from penstock.spark.tables.partitioning import computed_fields
from penstock.spark.tables.spec import TableSpec, ValueKind
from penstock.spark.tables.table_schema import (
    ERROR,
    KEY,
    SOURCE_COLUMNS,
    VALUE,
    partition_fields_of,
)

# The source columns that a task reads, in the order of the table's columns.
READ_COLUMNS = tuple(SOURCE_COLUMNS.values())
_NO_KEY = "no key, but the table has one row per key"


class Shaped(NamedTuple):
    rows: pa.Table  # record and value columns, without computed columns
    dead: pa.Table  # with `dead_letter_schema`
    seen_fields: list[pa.Field]  # of JSON values, if the table's columns evolve


class Shaper:
    """Converts the records of one task, given the spec and the current value columns."""

    def __init__(self, spec: TableSpec, fields: Sequence[pa.Field]) -> None:
        self._spec = spec
        self._fields = list(fields)
        self._avro: Any = None
        self._computed = {field.name for field in computed_fields(partition_fields_of(spec))}

    def shape(self, batch: pa.RecordBatch) -> Shaped:
        records = pa.Table.from_batches([batch]).rename_columns(list(SOURCE_COLUMNS))
        values = batch.column(READ_COLUMNS.index("value"))
        parsed = self._parse(values)
        bad = dict(parsed.bad)
        if self._spec.upserts:
            bad = {**bad, **dict.fromkeys(_null_indexes(records.column(KEY)), _NO_KEY)}
        is_good = _is_good(len(values), bad)
        kept = records if self._spec.keeps_value else records.drop_columns([VALUE])
        rows = pa.Table.from_arrays(
            [*kept.columns, *parsed.columns.columns],
            schema=pa.schema([*kept.schema, *self._fields]),
        )
        if not bad:
            return Shaped(rows, _dead(records.slice(0, 0), []), parsed.seen_fields)
        reasons = [bad[index] for index in sorted(bad)]
        dead = _dead(records.filter(pc.invert(is_good)), reasons)
        return Shaped(rows.filter(is_good), dead, parsed.seen_fields)

    def _parse(self, values: pa.Array) -> ParsedValues:
        match self._spec.value:
            case ValueKind.RAW:
                return ParsedValues(pa.table({}), {}, [])
            case ValueKind.TEXT:
                return _parse_text(values, self._fields)
            case ValueKind.JSON:
                finds = self._spec.evolves or (self._spec.infers and not self._fields)
                parsed = parse_json(values, self._fields, finds_fields=finds)
                seen = [field for field in parsed.seen_fields if field.name not in self._computed]
                return parsed._replace(seen_fields=seen)
            case ValueKind.AVRO:
                return self._parse_avro(values)

    def _parse_avro(self, values: pa.Array) -> ParsedValues:
        from penstock.spark.codec.avro_types import without_unused_logical_types
        from penstock.spark.codec.avro_values import decode_values

        if self._avro is None:
            self._avro = without_unused_logical_types(self._spec.avro)
        result = pa.struct([*self._fields, pa.field(ERROR, pa.string())])
        decoded = decode_values(values, self._avro, self._spec.skip_bytes, result)
        columns = pa.Table.from_arrays(decoded.flatten(), names=[field.name for field in result])
        reasons = columns.column(ERROR).to_pylist()
        bad = {index: reason for index, reason in enumerate(reasons) if reason is not None}
        return ParsedValues(columns.drop_columns([ERROR]), bad, [])


def _parse_text(values: pa.Array, fields: Sequence[pa.Field]) -> ParsedValues:
    bad: dict[int, str] = {}
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [_decode_text(value) for value in values.to_pylist()]
        for index, value in enumerate(values):
            if value.is_valid and decoded[index] is None:
                bad[index] = "not UTF-8 text"
        texts = pa.array(decoded, pa.string())
    return ParsedValues(pa.Table.from_arrays([texts], schema=pa.schema(fields)), bad, [])


def _decode_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _null_indexes(column: pa.ChunkedArray) -> list[int]:
    if not column.null_count:
        return []
    indexes: list[int] = pc.indices_nonzero(column.is_null()).to_pylist()
    return indexes


def _is_good(rows: int, bad: dict[int, str]) -> pa.Array:
    good = [True] * rows if bad else []
    for index in bad:
        good[index] = False
    return pa.array(good, pa.bool_())


def _dead(records: pa.Table, reasons: list[str]) -> pa.Table:
    return records.append_column(ERROR, pa.array(reasons, pa.string()))
