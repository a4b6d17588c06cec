"""Reads message_schemas.txt, the fields of every Kafka request and response by version.

The file is written by `python -m tests.unit.protocol.schema_table_from_kio` and compared with kio's
generated classes by a test; nothing else knows its syntax. Only requested messages are parsed.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from penstock.model.errors import get_error
from penstock.model.package_file import read_package_file
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.message_class import (
    REQUIRED,
    STRUCT,
    FieldShape,
    WireMessage,
    make_message_class,
)

_NULL = "null"
_ZEROS = {"int8": 0, "int16": 0, "int32": 0, "int64": 0, "bool": False, "string": ""}


class _Row(NamedTuple):
    """A field and the versions in which it is the same."""

    name: str
    type_name: str  # a primitive, or the capitalized class name of a struct
    is_array: bool
    is_nullable: bool
    versions: range
    tag: int | None
    default: str | None
    children: tuple["_Row", ...]


class MessageSchema(NamedTuple):
    name: str
    versions: range
    rows: tuple[_Row, ...]

    def make_class(self, api_key: ApiKey, version: int) -> type[WireMessage]:
        return _ClassMaker(api_key, version).make(self.name, self.rows)


@cache
def find_message_schema(name: str) -> MessageSchema | None:
    """The schema of a message such as "MetadataRequest"; None if there is none."""
    block = _blocks().get(name)
    if block is None:
        return None
    head, *lines = block.splitlines()
    return MessageSchema(name, _parse_versions(head.split()[1]), _parse_rows(iter(lines)))


@cache
def _blocks() -> dict[str, str]:
    """Blank lines separate the blocks of the file; comments come first."""
    _, *blocks = read_package_file(__file__, "message_schemas.txt").split("\n\n")
    return {block.split(" ", 1)[0]: block for block in blocks}


def _parse_versions(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parse_rows(lines: Iterator[str]) -> tuple[_Row, ...]:
    """Children are indented by one space more than their parent."""
    levels: list[list[_Row]] = [[]]

    def close(depth: int) -> None:
        while len(levels) > depth:
            children = tuple(levels.pop())
            levels[-1][-1] = levels[-1][-1]._replace(children=children)

    for line in lines:
        text = line.lstrip()
        depth = len(line) - len(text)
        close(depth)
        if len(levels) < depth:
            levels.append([])
        levels[depth - 1].append(_parse_row(text))
    close(1)
    return tuple(levels[0])


def _parse_row(text: str) -> _Row:
    name, type_text, versions, *rest = text.split(" ")
    options = dict(option.split("=", 1) for option in rest)
    bare = type_text.removesuffix("?")
    return _Row(
        name=name,
        type_name=bare.removeprefix("[]"),
        is_array=bare.startswith("[]"),
        is_nullable=type_text.endswith("?"),
        versions=_parse_versions(versions),
        tag=int(options["tag"]) if "tag" in options else None,
        default=options.get("default"),
        children=(),
    )


class _ClassMaker(NamedTuple):
    api_key: ApiKey
    version: int

    def make(self, name: str, rows: tuple[_Row, ...]) -> type[WireMessage]:
        return make_message_class(
            name,
            [self._make_field(row) for row in rows if self.version in row.versions],
            api_key=self.api_key,
            version=self.version,
            is_flexible=self.api_key.is_flexible(self.version),
        )

    def _make_field(self, row: _Row) -> FieldShape:
        is_struct = row.type_name[0].isupper()
        entity = self.make(row.type_name, row.children) if is_struct else None
        return FieldShape(
            name=row.name,
            kafka_type=STRUCT if is_struct else row.type_name,
            entity=entity,
            is_array=row.is_array,
            is_nullable=row.is_nullable,
            tag=row.tag,
            default=_default(row, entity),
        )


def _default(row: _Row, entity: type[WireMessage] | None) -> object:
    if row.default is not None:
        return _parse_default(row, row.default)
    if row.tag is None:
        return REQUIRED
    if entity is not None and not row.is_array:
        return entity(**{field.name: _zero(field) for field in entity.__fields__})
    return _ZEROS[row.type_name]


def _zero(field: FieldShape) -> object:
    return field.default if field.default is not REQUIRED else _ZEROS[field.kafka_type]


def _parse_default(row: _Row, text: str) -> object:
    if text == _NULL:
        return None
    if row.is_array:
        return ()
    match row.type_name:
        case "string":
            return ""  # the only string that any schema has as a default
        case "bool":
            return text == "true"
        case "error_code":
            return get_error(int(text))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=int(text))
    return int(text)
