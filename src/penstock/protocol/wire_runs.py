"""Packs adjacent fixed-size fields in one call, including arrays of numbers among them.

One `Struct.pack` per run instead of one per field is most of the generated encoder's speed.
"""

import struct
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from penstock.protocol.generated import FunctionSource
from penstock.protocol.unsigned_varint import encode_unsigned_varint

MAX_SHAPES = 1024  # lengths are ours, not a client's, but the cache is bounded anyway
_ONE_BYTE_LENGTHS = 0x7F  # a compact length is stored plus one, in 7 bits a byte

Pack = Callable[..., bytes]


class _Item(NamedTuple):
    code: str
    value: str  # an expression; of an array, the local name that holds it
    is_array: bool = False
    is_compact: bool = False


class PackRun:
    """The fixed fields seen since the last flush, and the code that packs them."""

    def __init__(self, source: FunctionSource) -> None:
        self._source = source
        self._items: list[_Item] = []

    def add(self, code: str, value: str) -> None:
        self._items.append(_Item(code, value))

    def add_zero(self) -> None:
        """One zero byte: no tagged fields."""
        self._items.append(_Item("x", ""))

    def add_array(self, code: str, local: str, *, is_compact: bool) -> None:
        self._items.append(_Item(code, local, is_array=True, is_compact=is_compact))

    def flush(self) -> None:
        if self._items:
            self._write(self._items)
            self._items = []

    def flush_with_varint(self, length: str) -> None:
        """Pack the run and the varint `length`, in one call if the varint is a single byte."""
        with self._source.block(f"if {length} < 128:"):
            self._write([*self._items, _Item("B", length)])
        with self._source.block("else:"):
            if self._items:
                self._write(self._items)
            self._source.line(f"append(uvarint({length}))")
        self._items = []

    def _write(self, items: list[_Item]) -> None:
        values = ", ".join(_arguments(item) for item in items if item.code != "x")
        arrays = [item.value for item in items if item.is_array]
        if arrays:
            shapes = self._source.name(Shapes(items), "shapes")
            lengths = ", ".join(f"len({array})" for array in arrays)
            self._source.line(f"append({shapes}[({lengths},)]({values}))")
            return
        packed = struct.Struct(">" + "".join(item.code for item in items))
        if values:
            self._source.line(f"append({self._source.name(packed.pack, 'pack')}({values}))")
        else:
            self._source.line(f"append({packed.pack()!r})")


class Shapes(dict[tuple[int, ...], Pack]):
    """Caches how to pack a run with arrays, by the arrays' lengths, because the same lengths recur:
    a partition's replicas are 3, 3, 0 again and again."""

    def __init__(self, items: list[_Item]) -> None:
        super().__init__()
        self._items = items

    def __missing__(self, lengths: tuple[int, ...]) -> Pack:
        compact = any(item.is_compact for item in self._items)
        if compact and max(lengths) >= _ONE_BYTE_LENGTHS:
            return lambda *values: self._pack_long(lengths, values)
        pack = struct.Struct(">" + "".join(self._codes(lengths))).pack
        if len(self) < MAX_SHAPES:
            self[lengths] = pack
        return pack

    def _codes(self, lengths: tuple[int, ...]) -> list[str]:
        remaining = iter(lengths)
        return [
            f"{'B' if item.is_compact else 'i'}{next(remaining)}{item.code}"
            if item.is_array
            else item.code
            for item in self._items
        ]

    def _pack_long(self, lengths: tuple[int, ...], values: tuple[int, ...]) -> bytes:
        """The slow path: an array of 127 or more, whose length takes several bytes."""
        remaining, rest = iter(lengths), iter(values)
        packed = []
        for item in self._items:
            if item.is_array:
                length = next(remaining)
                packed.append(encode_unsigned_varint(next(rest)))
                packed.append(struct.pack(f">{length}{item.code}", *islice(rest, length)))
            elif item.code == "x":
                packed.append(b"\0")
            else:
                packed.append(struct.pack(f">{item.code}", next(rest)))
        return b"".join(packed)


def _arguments(item: _Item) -> str:
    if not item.is_array:
        return item.value
    return f"len({item.value}){' + 1' if item.is_compact else ''}, *{item.value}"
