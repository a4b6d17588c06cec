"""Records as they were read into rows of a table, and what does not fit aside.

Pure. Runs in tasks. Invariant: every record is a row, or a dead letter with its reason; none is
both.
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
    divisions_of,
)

# What a task reads of the topic, in the order of a table's columns.
READ_COLUMNS = tuple(SOURCE_COLUMNS.values())
_NO_KEY = "it has no key, and the table has a row for each key"


class Shaped(NamedTuple):
    rows: pa.Table  # of the record's columns and the value's, without what is computed
    dead: pa.Table  # of `dead_letter_schema`
    found: list[pa.Field]  # fields of JSON values, where the table grows by them


class Shaper:
    """For one task: the specification, and the columns that values have so far."""

    def __init__(self, spec: TableSpec, fields: Sequence[pa.Field]) -> None:
        self._spec = spec
        self._fields = list(fields)
        self._avro: Any = None
        self._computed = {each.name for each in computed_fields(divisions_of(spec))}

    def shape(self, batch: pa.RecordBatch) -> Shaped:
        records = pa.Table.from_batches([batch]).rename_columns(list(SOURCE_COLUMNS))
        values = batch.column(READ_COLUMNS.index("value"))
        parsed = self._parse(values)
        bad = dict(parsed.bad)
        if self._spec.upserts:
            bad = {**bad, **dict.fromkeys(_null_places(records.column(KEY)), _NO_KEY)}
        is_good = _is_good(len(values), bad)
        kept = records if self._spec.keeps_value else records.drop_columns([VALUE])
        rows = pa.Table.from_arrays(
            [*kept.columns, *parsed.columns.columns],
            schema=pa.schema([*kept.schema, *self._fields]),
        )
        if not bad:
            return Shaped(rows, _dead(records.slice(0, 0), []), parsed.found)
        reasons = [bad[place] for place in sorted(bad)]
        dead = _dead(records.filter(pc.invert(is_good)), reasons)
        return Shaped(rows.filter(is_good), dead, parsed.found)

    def _parse(self, values: pa.Array) -> ParsedValues:
        match self._spec.value:
            case ValueKind.RAW:
                return ParsedValues(pa.table({}), {}, [])
            case ValueKind.TEXT:
                return _parse_text(values, self._fields)
            case ValueKind.JSON:
                finds = self._spec.evolves or (self._spec.infers and not self._fields)
                parsed = parse_json(values, self._fields, finds_fields=finds)
                found = [each for each in parsed.found if each.name not in self._computed]
                return parsed._replace(found=found)
            case ValueKind.AVRO:
                return self._parse_avro(values)

    def _parse_avro(self, values: pa.Array) -> ParsedValues:
        from penstock.spark.codec.avro_types import without_unused_logical_types
        from penstock.spark.codec.avro_values import decode_values

        if self._avro is None:
            self._avro = without_unused_logical_types(self._spec.avro)
        result = pa.struct([*self._fields, pa.field(ERROR, pa.string())])
        decoded = decode_values(values, self._avro, self._spec.skip_bytes, result)
        columns = pa.Table.from_arrays(decoded.flatten(), names=[each.name for each in result])
        reasons = columns.column(ERROR).to_pylist()
        bad = {place: reason for place, reason in enumerate(reasons) if reason is not None}
        return ParsedValues(columns.drop_columns([ERROR]), bad, [])


def _parse_text(values: pa.Array, fields: Sequence[pa.Field]) -> ParsedValues:
    bad: dict[int, str] = {}
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        found = [_find_text(each) for each in values.to_pylist()]
        for place, value in enumerate(values):
            if value.is_valid and found[place] is None:
                bad[place] = "it is no UTF-8 text"
        texts = pa.array(found, pa.string())
    return ParsedValues(pa.Table.from_arrays([texts], schema=pa.schema(fields)), bad, [])


def _find_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _null_places(column: pa.ChunkedArray) -> list[int]:
    if not column.null_count:
        return []
    places: list[int] = pc.indices_nonzero(column.is_null()).to_pylist()
    return places


def _is_good(rows: int, bad: dict[int, str]) -> pa.Array:
    good = [True] * rows if bad else []
    for place in bad:
        good[place] = False
    return pa.array(good, pa.bool_())


def _dead(records: pa.Table, reasons: list[str]) -> pa.Table:
    return records.append_column(ERROR, pa.array(reasons, pa.string()))
