"""Decides how changes of rows become the rows of a table: the latest of each key, or all versions
of it. Pure, on Arrow; `delta_merge` and `iceberg_merge` write what is decided.

Invariant: applying the same changes again changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import SparkSourceError

DELETED = "_penstock_deleted"  # a column of changes: whether the row is deleted
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"

Row = Mapping[str, Any]
Key = tuple[Any, ...]


def check_keys(changes: pa.Table, keys: Sequence[str]) -> None:
    """Raises SparkSourceError for rows without a key."""
    for key in keys:
        missing = changes.column(key).null_count
        if missing:
            raise SparkSourceError(
                f"{missing} rows have no {key!r}, which is a key of the table: drop them with an "
                f"expectation, {{condition: {key} IS NOT NULL, otherwise: drop}}"
            )


def split_deleted(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(rows to keep, rows of keys to delete), without the column that says so."""
    is_deleted = pc.fill_null(changes.column(DELETED), False)
    rows = changes.drop_columns([DELETED])
    return rows.filter(pc.invert(is_deleted)), rows.filter(is_deleted)


def not_older(changes: pa.Table, stored: pa.Table, keys: Sequence[str], order: str) -> pa.Table:
    """The changes, without those of keys of which a later row is stored."""
    newest = dict(zip(_keys_of(stored, keys), stored.column(order).to_pylist(), strict=True))
    orders = changes.column(order).to_pylist()
    keep = [
        newest.get(key) is None or (at is not None and at >= newest[key])
        for key, at in zip(_keys_of(changes, keys), orders, strict=True)
    ]
    return changes.filter(pa.array(keep, pa.bool_()))


def versions_schema(rows: pa.Schema, order: str) -> pa.Schema:
    """The table of versions: the rows' columns, and from when to when each is valid."""
    taken = {VALID_FROM, VALID_TO, IS_CURRENT} & set(rows.names)
    if taken:
        raise SparkSourceError(
            f"the rows have columns {', '.join(sorted(taken))}, which scd2 adds: rename yours"
        )
    kind = rows.field(order).type
    added = [(VALID_FROM, kind), (VALID_TO, kind), (IS_CURRENT, pa.bool_())]
    return pa.schema([*rows, *(pa.field(name, added_kind) for name, added_kind in added)])


def next_versions(stored: pa.Table, changes: pa.Table, keys: Sequence[str], order: str) -> pa.Table:
    """The versions to write, each found by its key and `valid_from`.

    `stored` are all versions of the keys that change; `changes` are in the order of their arrival.
    Changes may be older than what is stored.
    """
    schema = versions_schema(changes.drop_columns([DELETED]).schema, order)
    for field in stored.schema:  # versions that are closed keep what changes no longer have
        schema = schema if field.name in schema.names else schema.append(field)
    versions: dict[Key, list[Row]] = {}
    for key, row in zip(_keys_of(stored, keys), stored.to_pylist(), strict=True):
        versions.setdefault(key, []).append(row)
    events: dict[Key, dict[Any, Row | None]] = {}
    for key, row in zip(_keys_of(changes, keys), changes.to_pylist(), strict=True):
        if row[order] is None:
            raise SparkSourceError(f"a row with key {key} has no {order!r}, which orders versions")
        is_deleted = row.pop(DELETED)
        events.setdefault(key, {})[row[order]] = None if is_deleted else row
    written = [
        version
        for key, changed in events.items()
        for version in _versions_of_key(versions.get(key, []), changed)
    ]
    return pa.Table.from_pylist(written, schema)


def _versions_of_key(stored: Sequence[Row], changed: Mapping[Any, Row | None]) -> Iterable[Row]:
    """The versions of one key that differ from the stored ones."""
    by_start = {row[VALID_FROM]: row for row in stored}
    events: dict[Any, Row | None] = {}
    for row in stored:
        if row[VALID_TO] is not None and row[VALID_TO] not in by_start:
            events[row[VALID_TO]] = None
    for start, row in by_start.items():
        is_empty = row[VALID_TO] == start  # deleted at the moment from which it would be valid
        events[start] = None if is_empty else _values(row)
    events.update(changed)
    moments = sorted(events)
    for moment, following in pairwise([*moments, None]):
        values = events[moment]
        if values is not None:
            version: Row = {
                **values, VALID_FROM: moment, VALID_TO: following, IS_CURRENT: following is None
            }  # fmt: skip
        elif moment in by_start:
            version = {**by_start[moment], VALID_TO: moment, IS_CURRENT: False}
        else:
            continue
        if version != by_start.get(moment):
            yield version


def _values(version: Row) -> Row:
    names = (VALID_FROM, VALID_TO, IS_CURRENT)
    return {name: value for name, value in version.items() if name not in names}


def of_keys(stored: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The stored rows whose keys are among those of the changes."""
    wanted = set(_keys_of(changes, keys))
    keep = [key in wanted for key in _keys_of(stored, keys)]
    return stored.filter(pa.array(keep, pa.bool_()))


def not_of_keys(stored: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The stored rows whose keys are not among those of the changes."""
    changed = set(_keys_of(changes, keys))
    keep = [key not in changed for key in _keys_of(stored, keys)]
    return stored.filter(pa.array(keep, pa.bool_()))


def _keys_of(rows: pa.Table, keys: Sequence[str]) -> list[Key]:
    return list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))


def storable(rows: pa.Table) -> pa.Table:
    """With the types that both formats store: times in UTC, no large types."""
    fields = [field.with_type(_storable_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema([field.with_nullable(True).remove_metadata() for field in fields]))


def _storable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _storable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_storable_type(kind.key_type), _storable_type(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _storable_type(field.type)) for field in fields])
    return kind
