"""Counts the entries of a request's arrays by position, before anything is decoded.

A small request can name hundreds of thousands of entries, and decoding blocks the event loop for a
microsecond or two for each. Checks nothing else: bytes that are malformed are left to the decoder.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from penstock.protocol.batch import Buffer
from penstock.protocol.decoder import least_item_bytes, skip_tags
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.request_budget import RequestBudget
from penstock.protocol.schemas import FieldShape, WireMessage, describe_fields
from penstock.protocol.unsigned_varint import read_unsigned_varint
from penstock.protocol.wire_types import FIXED_TYPES

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Excess(NamedTuple):
    """An array with more entries than its limit allows."""

    field: str
    entries: int
    limit: int

    def __str__(self) -> str:
        return f"{self.field} has {self.entries} entries, at most {self.limit} are accepted"


def find_excess(
    schema: type[WireMessage], body: Buffer, limits: Mapping[str, int]
) -> Excess | None:
    """The first top-level array above its limit. At most as many entries as the limits allow are
    looked at. None for malformed bytes, too: decoding them says what is wrong."""
    walk = _Walk(memoryview(body), is_flexible=schema.__flexible__)
    left = set(limits)
    try:
        for shape in describe_fields(schema):
            if not left or shape.tag is not None:
                return None
            if shape.name in limits:
                left.discard(shape.name)
                count, available = walk.peek_count()
                if count * least_item_bytes(shape, schema.__flexible__) > available:
                    return None
                if count > limits[shape.name]:
                    return Excess(shape.name, count, limits[shape.name])
            if left:
                walk.skip(shape)
    except (MalformedMessage, struct.error, IndexError):
        return None
    return None


class _Walk:
    """A position in a body, moved over whole fields."""

    def __init__(self, view: memoryview, *, is_flexible: bool) -> None:
        self._view = view
        self._is_flexible = is_flexible
        self._position = 0
        self._budget = RequestBudget()

    def peek_count(self) -> tuple[int, int]:
        """The entries of the array that starts here (-1 for null), and the bytes after the
        count."""
        count, position = self._read_length(_INT32)
        return count, len(self._view) - position

    def skip(self, shape: FieldShape) -> None:
        if shape.is_array:
            count, self._position = self._read_length(_INT32)
            entry = shape._replace(is_array=False, is_nullable=False)
            for _ in range(count):
                self.skip(entry)
        elif shape.entity is not None:
            self._skip_entity(shape)
        elif shape.kafka_type in FIXED_TYPES:
            self._move(FIXED_TYPES[shape.kafka_type].size)
        else:
            length, self._position = self._read_length(
                _INT16 if shape.kafka_type == "string" else _INT32
            )
            self._move(max(length, 0))

    def _skip_entity(self, shape: FieldShape) -> None:
        assert shape.entity is not None
        if shape.is_nullable:
            is_null = self._view[self._position] == 0xFF
            self._move(1)
            if is_null:
                return
        for field in describe_fields(shape.entity):
            if field.tag is None:
                self.skip(field)
        if self._is_flexible:
            self._position = skip_tags(self._view, self._position, len(self._view), self._budget)

    def _read_length(self, classic: struct.Struct) -> tuple[int, int]:
        """A length and the position after it."""
        if self._is_flexible:
            length, position = read_unsigned_varint(self._view, self._position)
            return length - 1, position
        return classic.unpack_from(self._view, self._position)[0], self._position + classic.size

    def _move(self, count: int) -> None:
        self._position += count
        if self._position > len(self._view):
            raise MalformedMessage(f"a field ends {self._position - len(self._view)} bytes late")
