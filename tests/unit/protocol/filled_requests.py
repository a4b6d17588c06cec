"""Builds requests with as many of the smallest elements as wanted, straight from the schemas."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.protocol.schemas import FieldShape, WireMessage, describe_fields
from penstock.protocol.unsigned_varint import encode_unsigned_varint
from penstock.protocol.wire_types import FIXED_TYPES

Path = tuple[str, ...]  # field names, from the request down to an array


class Filling(NamedTuple):
    """So many elements in the array at `path`, or tagged fields that no schema knows."""

    path: Path
    elements: int
    tagged_fields: int = 0


def list_arrays(schema: type[WireMessage]) -> list[Path]:
    return list(_find_arrays(schema, ()))


def _find_arrays(entity: type[WireMessage], above: Path) -> Iterator[Path]:
    for shape in describe_fields(entity):
        if shape.is_array and shape.tag is None:
            yield (*above, shape.name)
        if shape.entity is not None and shape.tag is None:
            yield from _find_arrays(shape.entity, (*above, shape.name))


def fill(schema: type[WireMessage], filling: Filling) -> bytes:
    """The body of a request; every other field is as small as it can be."""
    body = _entity(schema, filling.path, filling.elements)
    if not filling.tagged_fields:
        return body
    assert schema.__flexible__, f"{schema.__name__} has no tagged fields"
    count = encode_unsigned_varint(filling.tagged_fields)
    tags = b"".join(
        encode_unsigned_varint(_UNKNOWN_TAG + number) + b"\0"
        for number in range(filling.tagged_fields)
    )
    return body[:-1] + count + tags


_UNKNOWN_TAG = 1000


def _entity(entity: type[WireMessage], path: Path, count: int) -> bytes:
    is_flexible = entity.__flexible__
    fields = [
        _field(shape, is_flexible, path[1:] if path[:1] == (shape.name,) else None, count)
        for shape in describe_fields(entity)
        if shape.tag is None
    ]
    return b"".join(fields) + (b"\0" if is_flexible else b"")


def _field(shape: FieldShape, is_flexible: bool, below: Path | None, count: int) -> bytes:
    """`below` is the rest of the path if it leads through this field."""
    if shape.is_array:
        if below is None:
            return _length(0, "i", is_flexible)
        entry = shape._replace(is_array=False, is_nullable=False)
        if below:
            return _length(1, "i", is_flexible) + _field(entry, is_flexible, below, count)
        return _length(count, "i", is_flexible) + _field(entry, is_flexible, None, 0) * count
    if shape.entity is not None:
        present = b"\1" if shape.is_nullable else b""
        if shape.is_nullable and below is None:
            return b"\xff"
        return present + _entity(shape.entity, below or (), count)
    if shape.kafka_type in FIXED_TYPES:
        return bytes(FIXED_TYPES[shape.kafka_type].size)
    return _length(0, "h" if shape.kafka_type == "string" else "i", is_flexible)


def _length(value: int, code: str, is_flexible: bool) -> bytes:
    return encode_unsigned_varint(value + 1) if is_flexible else struct.pack(f">{code}", value)
