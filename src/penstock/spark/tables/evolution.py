"""How the columns of JSON values grow: types of fields that were found, joined with those known.

Pure. A type that is stored never changes: what does not fit is a bad value. Invariant: columns only
come, and a table of every earlier schema can be read with the new one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.tables.arrow_types import list_of
from penstock.spark.tables.table_schema import can_be_column


class GrownFields(NamedTuple):
    fields: list[pa.Field]
    added: list[str]  # names, dotted where a struct grew
    refused: list[str]  # fields of values that no column can be named after


def grow(known: Sequence[pa.Field], found: Iterable[pa.Field]) -> GrownFields:
    """Known columns as they are, then the new ones."""
    fields, added, refused = list(known), [], []
    places = {each.name.lower(): place for place, each in enumerate(fields)}
    for each in found:
        place = places.get(each.name.lower())
        if place is not None and fields[place].name == each.name:
            wider = _keep_and_add(fields[place].type, each.type)
            if wider != fields[place].type:
                fields[place] = fields[place].with_type(wider)
                added.append(f"{each.name}.*")
        elif place is not None or not can_be_column(each.name):
            refused.append(each.name)
        elif (settled := settle(each.type)) is not None:
            places[each.name.lower()] = len(fields)
            fields.append(pa.field(each.name, settled))
            added.append(each.name)
    return GrownFields(fields, added, refused)


def _keep_and_add(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """A struct gets fields more; everything else is kept."""
    if not (pa.types.is_struct(known) and pa.types.is_struct(found)):
        return known
    return pa.struct(grow(list(known), list(found)).fields)


def settle(found: pa.DataType) -> pa.DataType | None:
    """As a column can have it. None: nothing is known yet but nulls or empty lists."""
    if pa.types.is_null(found):
        return None
    if pa.types.is_list(found):
        element = settle(found.value_type)
        return None if element is None else list_of(element)
    if pa.types.is_struct(found):
        settled = [(each.name, settle(each.type)) for each in found]
        kept = [pa.field(name, kind) for name, kind in settled if kind and can_be_column(name)]
        return pa.struct(kept) if kept else None
    if pa.types.is_temporal(found):
        return pa.string()  # what looks like a time may be none in the next record
    return found


def join_fields(sides: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """What several tasks found, as one: the narrowest types that hold all."""
    joined: dict[str, pa.DataType] = {}
    for side in sides:
        for each in side:
            before = joined.get(each.name)
            joined[each.name] = each.type if before is None else join_types(before, each.type)
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
    """Of one value of parsed JSON."""
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
            for each in value:
                element = join_types(element, type_of(each))
            return list_of(element)
        case _:
            return pa.struct([pa.field(name, type_of(each)) for name, each in value.items()])
