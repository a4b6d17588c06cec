"""Reads and writes the fields of records in the coordinators' internal topics.

Kafka's plain and flexible encodings, one field per call. The coordinators define the layout of each
record. Invariant: a reader never allocates for a count that exceeds the remaining bytes.
"""

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from penstock.protocol.batch import Buffer
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.request_budget import STRUCT_ELEMENTS, RequestBudget
from penstock.protocol.unsigned_varint import encode_unsigned_varint, read_unsigned_varint

Item = TypeVar("Item")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class MalformedRecord(MalformedMessage):
    """A coordinator's record does not match its layout."""


class UnknownKey(MalformedRecord):
    """An unknown kind of record; a newer broker may have written it."""


class ValueWriter:
    """`flexible`: compact lengths, and tagged fields at the end of every struct."""

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[bytes] = []

    def int8(self, value: int) -> None:
        self._parts.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        self._parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self._parts.append(_INT64.pack(value))

    def uuid(self, value: UUID) -> None:
        self._parts.append(value.bytes)

    def string(self, value: str | None) -> None:
        data = None if value is None else value.encode()
        self._length(data, _INT16)
        self._parts.append(data or b"")

    def data(self, value: bytes) -> None:
        self.nullable_data(value)

    def nullable_data(self, value: bytes | None) -> None:
        self._length(value, _INT32)
        self._parts.append(value or b"")

    def array(
        self, items: Sequence[Item] | None, write: Callable[["ValueWriter", Item], None]
    ) -> None:
        self._length(items, _INT32)
        for item in items or ():
            write(self, item)

    def tags(self, *tagged: tuple[int, bytes]) -> None:
        """Ends a struct; tags come in increasing order."""
        if self._flexible:
            self._parts.append(encode_unsigned_varint(len(tagged)))
            for tag, data in tagged:
                self._parts.append(encode_unsigned_varint(tag))
                self._parts.append(encode_unsigned_varint(len(data)))
                self._parts.append(data)

    def done(self) -> bytes:
        return b"".join(self._parts)

    def _length(self, value: Sequence[object] | bytes | None, plain: struct.Struct) -> None:
        if self._flexible:
            self._parts.append(encode_unsigned_varint(0 if value is None else len(value) + 1))
        else:
            self._parts.append(plain.pack(-1 if value is None else len(value)))


class ValueReader:
    """Raises MalformedRecord for bytes that do not match the layout, and RequestOverLimit for more
    than the budget. Without a budget: for records of our own logs."""

    def __init__(
        self, data: Buffer, *, flexible: bool, budget: RequestBudget | None = None
    ) -> None:
        self._view = memoryview(data)
        self._position = 0
        self._flexible = flexible
        self._budget = budget

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self._take(16)))

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedRecord("a string is null where one is required")
        return value

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        if length < 0:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRecord(f"a string is not UTF-8: {error}") from None

    def data(self) -> bytes:
        value = self.nullable_data()
        if value is None:
            raise MalformedRecord("bytes are null where they are required")
        return value

    def nullable_data(self) -> bytes | None:
        length = self._length(_INT32)
        return None if length < 0 else bytes(self._take(length))

    def array(self, read: Callable[["ValueReader"], Item]) -> list[Item]:
        items = self.nullable_array(read)
        if items is None:
            raise MalformedRecord("a list is null where one is required")
        return items

    def nullable_array(self, read: Callable[["ValueReader"], Item]) -> list[Item] | None:
        count = self._length(_INT32)
        if count < 0:
            return None
        if count > len(self._view) - self._position:  # an item takes at least a byte
            raise MalformedRecord(f"{count} items do not fit in the remaining bytes")
        if self._budget is not None:
            self._budget.charge("a list", count * STRUCT_ELEMENTS)
        return [read(self) for _ in range(count)]

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields that end a struct, by tag; the caller handles unknown ones."""
        if not self._flexible:
            return {}
        tags: dict[int, memoryview] = {}
        count = self._varint()
        if self._budget is not None:
            self._budget.charge_tagged_fields(count)
        for _ in range(count):
            tag = self._varint()
            tags[tag] = self._take(self._varint())
        return tags

    def end(self) -> None:
        """Raises MalformedRecord if bytes follow."""
        left = len(self._view) - self._position
        if left:
            raise MalformedRecord(f"{left} bytes follow the end")

    def _number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack(self._take(kind.size))
        return int(value)

    def _length(self, plain: struct.Struct) -> int:
        return self._varint() - 1 if self._flexible else self._number(plain)

    def _varint(self) -> int:
        try:
            value, self._position = read_unsigned_varint(self._view, self._position)
        except (IndexError, MalformedMessage) as error:
            raise MalformedRecord(f"ends early or in a broken number: {error}") from None
        return value

    def _take(self, length: int) -> memoryview:
        end = self._position + length
        if length < 0 or end > len(self._view):
            left = len(self._view) - self._position
            raise MalformedRecord(f"{length} bytes are announced, {left} are left")
        taken = self._view[self._position : end]
        self._position = end
        return taken
