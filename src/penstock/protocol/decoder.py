"""Decodes messages: one function per message class, generated on first use.

Every length and count is compared with the remaining bytes, and every count is charged to the
request's budget, before anything is built from it; unknown tagged fields are skipped (KIP-482).
`records` are views of the caller's buffer.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.protocol.batch import Buffer
from penstock.protocol.generated import FunctionSource
from penstock.protocol.malformed import MalformedMessage, RequestOverLimit
from penstock.protocol.request_budget import STRUCT_ELEMENTS, RequestBudget
from penstock.protocol.schemas import FieldShape, WireMessage, describe_fields
from penstock.protocol.unsigned_varint import read_unsigned_varint
from penstock.protocol.wire_types import CONVERSIONS, FIXED_TYPES, FixedType

Decoder = Callable[[memoryview, int, int, RequestBudget], tuple[Any, int]]

_LENGTH_CODES: Final = {"string": "h", "bytes": "i", "records": "i"}
_MAX_CACHED_LENGTH: Final = 256
_DECODERS: dict[type[WireMessage], Decoder] = {}  # one per message class, so bounded
# The maximum of a classic string, and Kafka's limit for all strings.
MAX_STRING_BYTES: Final = 0x7FFF


def decode(entity: type[WireMessage], buffer: Buffer, budget: RequestBudget | None = None) -> Any:
    """Decode the message that fills the whole buffer, or raise MalformedMessage, or
    RequestOverLimit. Without a budget: for messages of a peer that we trust."""
    view = memoryview(buffer)
    end = len(view)
    try:
        message, position = decoder_of(entity)(view, 0, end, budget or RequestBudget.unbounded())
    except (struct.error, IndexError):
        raise MalformedMessage(f"{_title(entity)} ends early, after {end} bytes") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(
            f"{_title(entity)} has a string that is not UTF-8: {error}"
        ) from None
    except RequestOverLimit:
        raise
    except (MalformedMessage, OverflowError) as error:
        raise MalformedMessage(f"{_title(entity)}: {error}") from None
    if position != end:
        raise MalformedMessage(f"{_title(entity)} ends at byte {position} of {end}")
    return message


def decoder_of(entity: type[WireMessage]) -> Decoder:
    """The function that reads one entity: (view, position, end, budget) -> (value, next
    position).

    It may raise struct.error, IndexError, UnicodeDecodeError or OverflowError; see `decode`.
    """
    decoder = _DECODERS.get(entity)
    if decoder is None:
        decoder = _DECODERS[entity] = _Generator(entity).compile()
    return decoder


def skip_tags(view: memoryview, position: int, end: int, budget: RequestBudget) -> int:
    """Skip a section of unknown tagged fields; returns the position after it."""
    count, position = read_unsigned_varint(view, position)
    if count * 2 > end - position:
        raise MalformedMessage(f"{count} tagged fields in {end - position} bytes")
    budget.charge_tagged_fields(count)
    while count:
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position += size
        if position > end:
            raise MalformedMessage(f"a tagged field ends {position - end} bytes too late")
        count -= 1
    return position


class _Generator:
    """Generates one entity's decoder: fixed-size fields collect in `run` and are unpacked together.

    The run includes the first bytes of a following length, too. In the generated code `p` is the
    position, `n` the end, and every field has its own local, `f_` and its name.
    """

    def __init__(self, entity: type[WireMessage]) -> None:
        self.is_flexible = entity.__flexible__
        self.entity = entity
        self.shapes = describe_fields(entity)
        self.source = FunctionSource("def decode(view, p, n, budget):", **_HELPERS)
        self.run: list[tuple[str, str]] = []
        self.after: list[str] = []  # conversions to do once the run is unpacked
        for shape in self.shapes:
            if shape.tag is None:
                self._field(shape, f"f_{shape.name}")
        if self.is_flexible:
            self._tags([shape for shape in self.shapes if shape.tag is not None])
        self._flush()
        self._build()

    def compile(self) -> Decoder:
        return self.source.compile("decode", f"decoder of {self.entity.__qualname__}")

    def _field(self, shape: FieldShape, local: str) -> None:
        if shape.is_array:
            self._array(shape, local)
        elif shape.entity is not None:
            self._entity(shape.entity, local, shape.is_nullable)
        elif shape.kafka_type in FIXED_TYPES:
            fixed = FIXED_TYPES[shape.kafka_type]
            self.run.append((fixed.code, local))
            if fixed.from_wire:
                self.after.append(f"{local} = {fixed.from_wire}({local})")
        else:
            self._text(shape, local)

    def _flush(self) -> None:
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.source.line(f"{self.run[0][1]} = view[p]")
            self.source.line("p += 1")
        elif self.run:
            packed = struct.Struct(">" + "".join(code for code, _ in self.run))
            unpack = self.source.name(packed.unpack_from, "unpack")
            targets = ", ".join(local for _, local in self.run)
            self.source.line(f"{targets}, = {unpack}(view, p)")
            self.source.line(f"p += {packed.size}")
        for line in self.after:
            self.source.line(line)
        self.run, self.after = [], []

    def _length(self, code: str) -> str:
        """Read a length, unpacked with the run before it. The result is -1 for null."""
        length = self.source.fresh("length")
        self.run.append(("B" if self.is_flexible else code, length))
        self._flush()
        if self.is_flexible:
            with self.source.block(f"if {length} > 127:"):
                self.source.line(f"{length}, p = uvarint(view, p - 1)")
            self.source.line(f"{length} -= 1")
        return length

    def _text(self, shape: FieldShape, local: str) -> None:
        length = self._length(_LENGTH_CODES[shape.kafka_type])
        with self.source.block(f"if {length} < 0:"):
            self._null(shape, local, length)
        with self.source.block("else:"):
            self.source.line(f"q = p + {length}")
            with self.source.block("if q > n:"):
                self.source.line(f"raise too_long({shape.name!r}, {length}, n - p)")
            if self.is_flexible and shape.kafka_type == "string":
                with self.source.block(f"if {length} > {MAX_STRING_BYTES}:"):
                    self.source.line(f"raise above_limit({shape.name!r}, {length})")
            self.source.line(f"{local} = {_TEXTS[shape.kafka_type]}")
            self.source.line("p = q")

    def _null(self, shape: FieldShape, local: str, length: str) -> None:
        if not shape.is_nullable:
            self.source.line(f"raise negative({shape.name!r}, {length})")
            return
        with self.source.block(f"if {length} != -1:"):
            self.source.line(f"raise negative({shape.name!r}, {length})")
        self.source.line(f"{local} = None")

    def _entity(self, entity: type[WireMessage], local: str, is_nullable: bool) -> None:
        decoder = self.source.name(decoder_of(entity), "decode_entity")
        if not is_nullable:
            self._flush()
            self.source.line(f"{local}, p = {decoder}(view, p, n, budget)")
            return
        self.run.append(("b", local))  # KIP-893: a byte says whether it is present
        self._flush()
        with self.source.block(f"if {local} < 0:"):
            self.source.line(f"{local} = None")
        with self.source.block("else:"):
            self.source.line(f"{local}, p = {decoder}(view, p, n, budget)")

    def _array(self, shape: FieldShape, local: str) -> None:
        length = self._length("i")
        with self.source.block(f"if {length} < 0:"):
            self._null(shape, local, length)
        item_bytes = least_item_bytes(shape, self.is_flexible)
        with self.source.block(f"elif {length} * {item_bytes} > n - p:"):
            self.source.line(f"raise too_many({shape.name!r}, {length}, n - p)")
        with self.source.block("else:"):
            self._charge(shape, length)
            fixed = FIXED_TYPES.get(shape.kafka_type)
            if fixed is not None:
                self._numbers(fixed, local, length)
            else:
                self._items(shape, local, length)

    def _charge(self, shape: FieldShape, length: str) -> None:
        times = "" if shape.entity is None else f" * {STRUCT_ELEMENTS}"
        self.source.line(f"budget.elements -= {length}{times}")
        with self.source.block("if budget.elements < 0:"):
            self.source.line(f"raise budget.exceeded({shape.name!r})")

    def _numbers(self, fixed: FixedType, local: str, length: str) -> None:
        if fixed.code == "16s":
            chunks = f"[bytes(view[i:i + 16]) for i in range(p, p + {length} * 16, 16)]"
            self.source.line(f"{local} = tuple([{fixed.from_wire}(raw) for raw in {chunks}])")
        else:
            unpackers = self.source.name(_UNPACKERS[fixed.code], "unpackers")
            self.source.line(f"{local} = {unpackers}[{length}](view, p)")
            if fixed.from_wire:
                convert = f"[{fixed.from_wire}(raw) for raw in {local}]"
                self.source.line(f"{local} = tuple({convert})")
        self.source.line(f"p += {length} * {fixed.size}")

    def _items(self, shape: FieldShape, local: str, length: str) -> None:
        self.source.line("items = []")
        with self.source.block(f"for _ in range({length}):"):
            self._field(shape._replace(is_array=False, is_nullable=False), "item")
            self.source.line("items.append(item)")
        self.source.line(f"{local} = tuple(items)")

    def _tags(self, shapes: list[FieldShape]) -> None:
        self.run.append(("B", "tags"))
        self._flush()
        if not shapes:
            with self.source.block("if tags:"):
                self.source.line("p = skip_tags(view, p - 1, n, budget)")
            return
        for shape in shapes:
            self.source.line(f"f_{shape.name} = {self.source.name(shape.default, 'default')}")
        with self.source.block("if tags:"):
            self._read_tags(shapes)

    def _read_tags(self, shapes: list[FieldShape]) -> None:
        self.source.line("tags, p = uvarint(view, p - 1)")
        with self.source.block("if tags * 2 > n - p:"):
            self.source.line("raise too_many('tagged fields', tags, n - p)")
        self.source.line("budget.charge_tagged_fields(tags)")
        self.source.line("seen, outer = set(), n")
        with self.source.block("while tags:"):
            self.source.line("tags -= 1")
            self.source.line("tag, p = uvarint(view, p)")
            self.source.line("size, p = uvarint(view, p)")
            self.source.line("n = p + size")
            with self.source.block("if n > outer or tag in seen:"):
                self.source.line("raise bad_tag(tag, size, outer - p)")
            self.source.line("seen.add(tag)")
            for number, shape in enumerate(shapes):
                with self.source.block(f"{'elif' if number else 'if'} tag == {shape.tag}:"):
                    self._field(shape, f"f_{shape.name}")
                    self._flush()
            with self.source.block("else:"):
                self.source.line("p = n")
            with self.source.block("if p != n:"):
                self.source.line("raise bad_tag(tag, size, p - n + size)")
            self.source.line("n = outer")

    def _build(self) -> None:
        """Fill a mutable class of the same layout and change its class to the immutable one: a
        third of the time of the class's own `__init__`, which goes through its slots' setters."""
        members = {
            "__slots__": self.entity.__slots__,
            "__setattr__": object.__setattr__,
            "__delattr__": object.__delattr__,  # both, else neither is the interpreter's fast one
        }
        mutable = type("Mutable", (WireMessage,), members)
        self.source.line(f"message = new({self.source.name(mutable, 'mutable')})")
        for shape in self.shapes:
            self.source.line(f"message.{shape.name} = f_{shape.name}")
        self.source.line(f"message.__class__ = {self.source.name(self.entity, 'entity')}")
        self.source.line("return message, p")


class _Unpackers(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Reads arrays of one number type; unpackers of the usual, short lengths are cached."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, length: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = struct.Struct(f">{length}{self._code}").unpack_from
        if length <= _MAX_CACHED_LENGTH:
            self[length] = unpack
        return unpack


def _least_bytes(entity: type[WireMessage]) -> int:
    is_flexible = entity.__flexible__
    untagged = (shape for shape in describe_fields(entity) if shape.tag is None)
    return is_flexible + sum(_least_field_bytes(shape, is_flexible) for shape in untagged)


def _least_field_bytes(shape: FieldShape, is_flexible: bool) -> int:
    if shape.is_array:
        return 1 if is_flexible else 4
    if shape.entity is not None:
        return 1 if shape.is_nullable else _least_bytes(shape.entity)
    if shape.kafka_type in FIXED_TYPES:
        return FIXED_TYPES[shape.kafka_type].size
    return 1 if is_flexible else struct.calcsize(_LENGTH_CODES[shape.kafka_type])


def least_item_bytes(shape: FieldShape, is_flexible: bool) -> int:
    """Never 0: a count must cost its sender at least as many bytes."""
    item = shape._replace(is_array=False, is_nullable=False)
    return max(1, _least_field_bytes(item, is_flexible))


def _title(entity: type[WireMessage]) -> str:
    return f"{entity.__name__} v{entity.__version__}"


def _too_long(field: str, length: int, available: int) -> MalformedMessage:
    return MalformedMessage(f"{field} claims {length} bytes, {available} are there")


def _above_limit(field: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{field} has {length} bytes, a string has {MAX_STRING_BYTES} at most")


def _too_many(field: str, count: int, available: int) -> MalformedMessage:
    return MalformedMessage(f"{field} claims {count} entries, which {available} bytes cannot hold")


def _negative(field: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{field} has the length {length}")


def _bad_tag(tag: int, size: int, used: int) -> MalformedMessage:
    return MalformedMessage(
        f"tagged field {tag} of {size} bytes comes twice or does not fit {used}"
    )


_UNPACKERS: Final = {fixed.code: _Unpackers(fixed.code) for fixed in FIXED_TYPES.values()}
_TEXTS: Final = {
    "string": "str(view[p:q], 'utf-8')",
    "bytes": "bytes(view[p:q])",
    "records": "view[p:q]",
}
_HELPERS: dict[str, object] = {
    **CONVERSIONS,
    "uvarint": read_unsigned_varint,
    "skip_tags": skip_tags,
    "new": object.__new__,
    "too_long": _too_long,
    "above_limit": _above_limit,
    "too_many": _too_many,
    "negative": _negative,
    "bad_tag": _bad_tag,
}
