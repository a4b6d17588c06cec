"""`python -m tests.unit.protocol.schema_table_from_kio` writes protocol/message_schemas.txt.

kio's classes are generated from Kafka's own message definitions, one module per version. Here the
versions of a message become one table, in which a field has the versions it exists in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map
from tests.unit.protocol import list_offsets_v0

from penstock.protocol import schema_table
from penstock.protocol.api_keys import find_api_key

TABLE = Path(schema_table.__file__).with_name("message_schemas.txt")
_HEAD = """\
# The fields of Kafka's requests and responses: name, type, versions, tag, default.
# [] is an array, ? may be null; a struct's fields follow it, indented by one more.
# Written by python -m tests.unit.protocol.schema_table_from_kio.
"""


class KioField(NamedTuple):
    """The properties that all versions of one row of the table share."""

    name: str
    type_text: str
    tag: int | None
    default: str | None


def write_table() -> str:
    return _HEAD + "".join(
        f"\n{name} {_span(list(versions))}\n" + "".join(_lines(versions, 1))
        for name, versions in sorted(messages().items())
    )


@cache
def messages() -> dict[str, dict[int, type]]:
    """Map the name of every request and response to kio's class, or one like it, by version."""
    by_name: dict[str, dict[int, type]] = {}
    for key, module in api_key_map.items():
        api_key = find_api_key(key)
        assert api_key is not None
        for version, kinds in sorted(schema_name_map[module].items()):
            for kind, path in kinds.items():
                name = api_key.title + kind.name.title()
                by_name.setdefault(name, {})[version] = resolve_name(path)
    for schema in (list_offsets_v0.ListOffsetsRequest, list_offsets_v0.ListOffsetsResponse):
        by_name[schema.__name__] = {0: schema, **by_name[schema.__name__]}
    return by_name


def _lines(versions: Mapping[int, type], depth: int) -> Iterator[str]:
    for row, classes in _rows(versions):
        options = "" if row.tag is None else f" tag={row.tag}"
        options += "" if row.default is None else f" default={row.default}"
        yield f"{' ' * depth}{row.name} {row.type_text} {_span(list(classes))}{options}\n"
        structs = {version: cls for version, cls in classes.items() if cls is not None}
        if structs:
            yield from _lines(structs, depth + 1)


def _rows(versions: Mapping[int, type]) -> list[tuple[KioField, dict[int, type | None]]]:
    """Return the rows in an order that fits every version."""
    order: list[KioField] = []
    classes: dict[KioField, dict[int, type | None]] = {}
    for version, schema in versions.items():
        position = 0
        for field in fields(schema):
            row, struct = _describe(field)
            if row not in classes:
                order.insert(position, row)
                classes[row] = {}
            classes[row][version] = struct
            position = order.index(row) + 1
    return [(row, classes[row]) for row in order]


def _describe(field: Field[Any]) -> tuple[KioField, type | None]:
    inner, is_nullable = _split_optional(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _split_optional(get_args(inner)[0])
    struct = inner if isinstance(inner, type) and is_dataclass(inner) else None
    name = struct.__name__ if struct else field.metadata["kafka_type"]
    type_text = f"{'[]' if is_array else ''}{name}{'?' if is_nullable else ''}"
    return KioField(field.name, type_text, field.metadata.get("tag"), _default(field)), struct


def _split_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (inner,) = (part for part in get_args(annotation) if part is not NoneType)
    return inner, True


def _default(field: Field[Any]) -> str | None:
    """Return the default; None without one, or for a struct, whose fields have their own."""
    value = field.default
    if value is MISSING or is_dataclass(value):
        return None
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return str(value // timedelta(milliseconds=1))
    if isinstance(value, int):
        return str(int(value))
    assert value in ((), ""), f"{field.name} has the default {value!r}"
    return "()" if value == () else '""'


def _span(versions: list[int]) -> str:
    first, last = versions[0], versions[-1]
    assert versions == list(range(first, last + 1)), versions
    return str(first) if first == last else f"{first}-{last}"


if __name__ == "__main__":
    TABLE.write_text(write_table())
