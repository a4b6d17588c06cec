"""Schema evolution of JSON values: merges the fields seen in values with the table's columns.

Pure. A stored type never changes: a value that does not fit is bad. Invariant: columns are only
added, and files of every earlier schema can be read with the new one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.tables.arrow_types import list_of
from penstock.spark.tables.table_schema import can_be_column


class GrownFields(NamedTuple):
    fields: list[pa.Field]
    added: list[str]  # names, with `.*` where a struct grew
    refused: list[str]  # fields whose names cannot be column names


def grow(stored: Sequence[pa.Field], seen: Iterable[pa.Field]) -> GrownFields:
    """The stored columns unchanged, followed by the new ones."""
    fields, added, refused = list(stored), [], []
    indexes = {field.name.lower(): index for index, field in enumerate(fields)}
    for field in seen:
        index = indexes.get(field.name.lower())
        if index is not None and fields[index].name == field.name:
            wider = _with_new_fields(fields[index].type, field.type)
            if wider != fields[index].type:
                fields[index] = fields[index].with_type(wider)
                added.append(f"{field.name}.*")
        elif index is not None or not can_be_column(field.name):
            refused.append(field.name)
        elif (settled := settle(field.type)) is not None:
            indexes[field.name.lower()] = len(fields)
            fields.append(pa.field(field.name, settled))
            added.append(field.name)
    return GrownFields(fields, added, refused)


def _with_new_fields(stored: pa.DataType, seen: pa.DataType) -> pa.DataType:
    """A struct gains new fields; every other type stays."""
    if not (pa.types.is_struct(stored) and pa.types.is_struct(seen)):
        return stored
    return pa.struct(grow(list(stored), list(seen)).fields)


def settle(seen: pa.DataType) -> pa.DataType | None:
    """The column type for a seen type; None if only nulls or empty lists were seen so far."""
    if pa.types.is_null(seen):
        return None
    if pa.types.is_list(seen):
        element = settle(seen.value_type)
        return None if element is None else list_of(element)
    if pa.types.is_struct(seen):
        settled = [(field.name, settle(field.type)) for field in seen]
        kept = [pa.field(name, kind) for name, kind in settled if kind and can_be_column(name)]
        return pa.struct(kept) if kept else None
    if pa.types.is_temporal(seen):
        return pa.string()  # the next record's value may not look like a time
    return seen


def join_fields(sides: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """Merges the fields seen by several tasks, with the narrowest types that hold all values."""
    joined: dict[str, pa.DataType] = {}
    for side in sides:
        for field in side:
            before = joined.get(field.name)
            joined[field.name] = field.type if before is None else join_types(before, field.type)
    return [pa.field(name, kind) for name, kind in joined.items()]


def join_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _is_number(one) and _is_number(other):
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(join_fields([list(one), list(other)]))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return list_of(join_types(one.value_type, other.value_type))
    return pa.string()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_float64(kind))


def type_of(value: Any) -> pa.DataType:
    """The type of one parsed JSON value."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            element = pa.null()
            for item in value:
                element = join_types(element, type_of(item))
            return list_of(element)
        case _:
            return pa.struct([pa.field(name, type_of(item)) for name, item in value.items()])
