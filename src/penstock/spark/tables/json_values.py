"""Parses JSON values into columns: blocks with Arrow's parser, and single values where that fails.

Pure. Invariant: row i of the columns is value i, or i is in `bad`; a value is never partly parsed.
"""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.tables.evolution import join_fields, type_of

_BLOCK = 8192
_LEAF = 64  # a block that Arrow rejects is halved down to this size


class ParsedValues(NamedTuple):
    columns: pa.Table  # as many rows as there were values
    bad: dict[int, str]  # index of a value that does not fit the columns, and the reason
    seen_fields: list[pa.Field]  # all fields of the values, if requested


def parse_json(values: pa.Array, fields: Sequence[pa.Field], *, finds_fields: bool) -> ParsedValues:
    """Parses binary values; a null is a row of nulls. `finds_fields` also returns all fields of the
    values."""
    schema = pa.schema(list(fields))
    bad: dict[int, str] = {}
    tables, seen_fields, done = [schema.empty_table()], [], 0
    for rows, piece in _pieces(values, schema, finds_fields):
        tables.append(piece.columns)
        seen_fields.append(piece.seen_fields)
        bad |= {done + index: reason for index, reason in piece.bad.items()}
        done += rows
    columns = pa.concat_tables(tables) if fields else _empty_rows(done)
    return ParsedValues(columns, bad, join_fields(seen_fields))


def _pieces(
    values: pa.Array, schema: pa.Schema, finds_fields: bool
) -> Iterator[tuple[int, ParsedValues]]:
    is_simple = all(_is_fast(field.type) for field in schema)
    waiting = [values.slice(at, _BLOCK) for at in range(0, len(values), _BLOCK)][::-1]
    while waiting:
        block = waiting.pop()
        piece = _parse_block(block, schema, finds_fields) if is_simple else None
        if piece is not None:
            yield len(block), piece
        elif is_simple and len(block) > _LEAF:
            half = len(block) // 2
            waiting += [block.slice(half), block.slice(0, half)]
        else:
            yield len(block), _parse_singly(block, schema, finds_fields)


# Blocks.


def _is_fast(kind: pa.DataType) -> bool:
    """Whether Arrow's JSON parser reads this type as we do."""
    if pa.types.is_struct(kind):
        return all(_is_fast(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_fast(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_date(kind))


def _parse_block(values: pa.Array, schema: pa.Schema, finds_fields: bool) -> ParsedValues | None:
    """None if some value is not a single object that fits the columns.

    Values are joined with newlines. Each starts with `{` and ends with `}`, and no JSON object
    contains `}`, a newline and `{` in a row, so two values never merge into one; as many objects as
    values therefore means one object each.
    """
    if values.null_count:
        return _around_nulls(values, schema, finds_fields)
    if not len(values):
        return ParsedValues(schema.empty_table(), {}, [])
    try:
        texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
        are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
        if not pc.all(are_objects).as_py():
            return None
        table = _read_lines(texts, schema, finds_fields)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != len(values):
        return None
    seen_fields = list(table.schema) if finds_fields else []
    if finds_fields:
        table = _only_known(table, schema)
    return ParsedValues(table, {}, seen_fields)


def _read_lines(texts: pa.Array, schema: pa.Schema, finds_fields: bool) -> pa.Table:
    lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined = pc.binary_join(lines, "\n")[0].as_buffer()
    return pyarrow.json.read_json(
        io.BytesIO(joined),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="infer" if finds_fields else "ignore",
        ),
    )


def _only_known(table: pa.Table, schema: pa.Schema) -> pa.Table:
    from penstock.spark.tables.table_schema import conform

    return conform(table, schema)


def _around_nulls(values: pa.Array, schema: pa.Schema, finds_fields: bool) -> ParsedValues | None:
    rest = _parse_block(values.drop_null(), schema, finds_fields)
    if rest is None:
        return None
    is_there = values.is_valid()
    indexes = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    indexes = pc.if_else(is_there, indexes, pa.scalar(None, pa.int64()))
    return rest._replace(columns=rest.columns.take(indexes) if len(schema) else rest.columns)


def _empty_rows(count: int) -> pa.Table:
    """A table without columns that keeps its row count, which concatenating would lose."""
    return pa.table({"rows": pa.nulls(count)}).select([])


# Single values.


def _parse_singly(values: pa.Array, schema: pa.Schema, finds_fields: bool) -> ParsedValues:
    rows: list[dict[str, Any]] = []
    bad: dict[int, str] = {}
    seen_fields: list[list[pa.Field]] = []
    for index, value in enumerate(values.to_pylist()):
        try:
            whole = {} if value is None else _load(value)
            if finds_fields:
                seen_fields.append(list(type_of(whole)))
            rows.append({field.name: fit(whole.get(field.name), field) for field in schema})
        except ValueError as error:
            rows.append({})
            bad[index] = str(error)
    columns = pa.Table.from_pylist(rows, schema) if len(schema) else _empty_rows(len(rows))
    return ParsedValues(columns, bad, join_fields(seen_fields))


def _load(value: bytes) -> dict[str, Any]:
    try:
        whole = json.loads(value.decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    if not isinstance(whole, dict):
        raise ValueError("not a JSON object")
    return whole


def fit(value: Any, field: pa.Field) -> Any:
    """The value in the form that Arrow takes for this column. Raises ValueError with the field that
    does not fit."""
    try:
        return None if value is None else _fit(value, field.type)
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        shown = json.dumps(value)[:60]
        raise ValueError(f"field {field.name}: {shown} is not {field.type}") from None


def _fit(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text.encode().decode()  # fails for an unpaired surrogate
    if pa.types.is_boolean(kind):
        return _checked(value, isinstance(value, bool))
    if pa.types.is_integer(kind):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return _checked(
            value, is_whole and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
        )
    if pa.types.is_floating(kind):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(_checked(value, is_number))
    if pa.types.is_decimal(kind):
        number = Decimal(str(_checked(value, isinstance(value, int | float | str))))
        return pa.scalar(number, kind).as_py()
    if pa.types.is_nested(kind):
        return _fit_nested(value, kind)
    return _fit_text(_checked(value, isinstance(value, str)), kind)


def _fit_nested(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        element = pa.field("element", kind.value_type)
        return [fit(item, element) for item in _checked(value, isinstance(value, list))]
    whole: dict[str, Any] = _checked(value, isinstance(value, dict))
    if pa.types.is_map(kind):
        item = pa.field("value", kind.item_type)
        return [(name, fit(inner_value, item)) for name, inner_value in whole.items()]
    return {field.name: fit(whole.get(field.name), field) for field in kind}


def _fit_text(value: str, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value, validate=True)
    time = datetime.fromisoformat(value)
    if kind.tz is None:
        return time.replace(tzinfo=None)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _checked(value: Any, is_so: bool) -> Any:
    if not is_so:
        raise ValueError
    return value
