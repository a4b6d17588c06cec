"""JSON values into columns: whole blocks by Arrow's parser, and one by one what it does not take.

Pure. Invariant: row i of the columns is value i, or i is among the bad; a value is never half in.
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
_LEAF = 64  # a block that Arrow refuses is halved down to this


class ParsedValues(NamedTuple):
    columns: pa.Table  # as many rows as there were values
    bad: dict[int, str]  # place of a value that is none of these columns, and why
    found: list[pa.Field]  # all fields that were seen, if they were asked for


def parse_json(values: pa.Array, fields: Sequence[pa.Field], *, finds_fields: bool) -> ParsedValues:
    """`values` are binary; a null is a row of nulls. `finds_fields`: say also what is in them
    besides `fields`."""
    schema = pa.schema(list(fields))
    bad: dict[int, str] = {}
    tables, found, done = [schema.empty_table()], [], 0
    for rows, piece in _pieces(values, schema, finds_fields):
        tables.append(piece.columns)
        found.append(piece.found)
        bad |= {done + place: reason for place, reason in piece.bad.items()}
        done += rows
    columns = pa.concat_tables(tables) if fields else _empty_rows(done)
    return ParsedValues(columns, bad, join_fields(found))


def _pieces(
    values: pa.Array, schema: pa.Schema, finds_fields: bool
) -> Iterator[tuple[int, ParsedValues]]:
    is_simple = all(_is_fast(each.type) for each in schema)
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
    """What Arrow's JSON parser reads as it is meant here."""
    if pa.types.is_struct(kind):
        return all(_is_fast(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _is_fast(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_date(kind))


def _parse_block(values: pa.Array, schema: pa.Schema, finds_fields: bool) -> ParsedValues | None:
    """None: not every value is one object of these columns.

    Values stand on lines of their own. Each begins and ends with a brace, and no object of JSON has
    a brace that closes, a line's end and a brace that opens inside: two values never become one, so
    that as many objects as values means one object each."""
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
    found = list(table.schema) if finds_fields else []
    if finds_fields:
        table = _only_known(table, schema)
    return ParsedValues(table, {}, found)


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
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    places = pc.if_else(is_there, places, pa.scalar(None, pa.int64()))
    return rest._replace(columns=rest.columns.take(places) if len(schema) else rest.columns)


def _empty_rows(count: int) -> pa.Table:
    """Arrow forgets how many rows there are where tables without columns are joined."""
    return pa.table({"rows": pa.nulls(count)}).select([])


# One by one.


def _parse_singly(values: pa.Array, schema: pa.Schema, finds_fields: bool) -> ParsedValues:
    rows: list[dict[str, Any]] = []
    bad: dict[int, str] = {}
    found: list[list[pa.Field]] = []
    for place, value in enumerate(values.to_pylist()):
        try:
            whole = {} if value is None else _load(value)
            if finds_fields:
                found.append(list(type_of(whole)))
            rows.append({each.name: fit(whole.get(each.name), each) for each in schema})
        except ValueError as error:
            rows.append({})
            bad[place] = str(error)
    columns = pa.Table.from_pylist(rows, schema) if len(schema) else _empty_rows(len(rows))
    return ParsedValues(columns, bad, join_fields(found))


def _load(value: bytes) -> dict[str, Any]:
    try:
        whole = json.loads(value.decode())
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is no JSON: it is nested too deeply") from None
    if not isinstance(whole, dict):
        raise ValueError("it is no JSON object")
    return whole


def fit(value: Any, field: pa.Field) -> Any:
    """The value as Arrow takes it for this column; ValueError says where it does not fit."""
    try:
        return None if value is None else _fit(value, field.type)
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        shown = json.dumps(value)[:60]
        raise ValueError(f"field {field.name}: {shown} is no {field.type}") from None


def _fit(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text.encode().decode()  # half of a pair of surrogates is no text
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
        return [fit(each, element) for each in _checked(value, isinstance(value, list))]
    whole: dict[str, Any] = _checked(value, isinstance(value, dict))
    if pa.types.is_map(kind):
        item = pa.field("value", kind.item_type)
        return [(name, fit(each, item)) for name, each in whole.items()]
    return {each.name: fit(whole.get(each.name), each) for each in kind}


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
