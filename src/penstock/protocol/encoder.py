"""Encodes messages: one function per message class, generated on first use.

Not a validator: a value that does not fit raises UnencodableMessage. A message becomes a list of
parts; a `records` value that is not bytes (a file slice with a length) stays in the list unchanged.
"""

import struct
from collections.abc import Callable
from typing import Any

from penstock.protocol.generated import FunctionSource
from penstock.protocol.malformed import UnencodableMessage
from penstock.protocol.schemas import FieldShape, WireMessage, describe_fields
from penstock.protocol.unsigned_varint import encode_unsigned_varint
from penstock.protocol.wire_runs import PackRun
from penstock.protocol.wire_types import CONVERSIONS, FIXED_TYPES

Append = Callable[[Any], None]
Encoder = Callable[[Any, Append], None]

_ENCODERS: dict[type[WireMessage], Encoder] = {}  # one per message class, so bounded
_LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i"}


def encode(message: WireMessage) -> bytes:
    """Encode the message, without size and header."""
    return b"".join(encode_parts(message))


def encode_parts(message: WireMessage) -> list[Any]:
    """Bytes and, unchanged, the `records` between them, in wire order."""
    parts: list[Any] = []
    entity = type(message)
    try:
        encoder_of(entity)(message, parts.append)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        title = f"{entity.__name__} v{entity.__version__}"
        raise UnencodableMessage(f"{title} cannot be written: {error}") from error
    return parts


def encoder_of(entity: type[WireMessage]) -> Encoder:
    encoder = _ENCODERS.get(entity)
    if encoder is None:
        encoder = _ENCODERS[entity] = _Generator(entity).compile()
    return encoder


class _Generator:
    """Generates one entity's encoder: fixed-size fields collect in `run` and are packed
    together."""

    def __init__(self, entity: type[WireMessage]) -> None:
        self.is_flexible = entity.__flexible__
        self.entity = entity
        self.source = FunctionSource(
            "def encode(message, append):",
            uvarint=encode_unsigned_varint,
            write_compact=_write_compact,
            write_classic=_write_classic,
            **CONVERSIONS,
        )
        self.run = PackRun(self.source)
        shapes = describe_fields(entity)
        for shape in shapes:
            if shape.tag is None:
                self._field(shape, f"message.{shape.name}")
        self._tags(sorted((s for s in shapes if s.tag is not None), key=lambda s: s.tag or 0))
        self.run.flush()

    def compile(self) -> Encoder:
        if not self.source.has_body:
            self.source.line("pass")
        return self.source.compile("encode", f"encoder of {self.entity.__qualname__}")

    def _field(self, shape: FieldShape, value: str) -> None:
        if shape.is_array:
            self._array(shape, value)
        elif shape.entity is not None:
            self._entity(shape.entity, value, shape.is_nullable)
        elif shape.kafka_type in FIXED_TYPES:
            fixed = FIXED_TYPES[shape.kafka_type]
            self.run.add(fixed.code, f"{fixed.to_wire}({value})" if fixed.to_wire else value)
        else:
            self._text(shape, value)

    def _text(self, shape: FieldShape, value: str) -> None:
        """A string or bytes: its length ends the run, its bytes follow."""
        local = self.source.fresh("text")
        convert = ".encode()" if shape.kafka_type == "string" else ""
        self.source.line(f"{local} = {value}")
        self._length(local, _LENGTH_CODES[shape.kafka_type], shape.is_nullable, convert, "b''")
        self.source.line(f"append({local})")

    def _length(
        self, local: str, code: str, is_nullable: bool, convert: str = "", empty: str = "()"
    ) -> None:
        """Encode the length of `local`; from then on null is an empty value."""
        length = self.source.fresh("length")
        plus = " + 1" if self.is_flexible else ""
        if is_nullable:
            with self.source.block(f"if {local} is None:"):
                self.source.line(f"{local} = {empty}")
                self.source.line(f"{length} = {0 if self.is_flexible else -1}")
            with self.source.block("else:"):
                self._measure(local, length, convert, plus)
        else:
            self._measure(local, length, convert, plus)
        if self.is_flexible:
            self.run.flush_with_varint(length)
        else:
            self.run.add(code, length)
            self.run.flush()

    def _measure(self, local: str, length: str, convert: str, plus: str) -> None:
        if convert:
            self.source.line(f"{local} = {local}{convert}")
        self.source.line(f"{length} = len({local}){plus}")

    def _entity(self, entity: type[WireMessage], value: str, is_nullable: bool) -> None:
        encoder = self.source.name(encoder_of(entity), "encode_entity")
        if not is_nullable:
            self.run.flush()
            self.source.line(f"{encoder}({value}, append)")
            return
        local = self.source.fresh("entity")  # KIP-893: a byte says whether it is present
        self.source.line(f"{local} = {value}")
        self.run.add("b", f"-1 if {local} is None else 1")
        self.run.flush()
        with self.source.block(f"if {local} is not None:"):
            self.source.line(f"{encoder}({local}, append)")

    def _array(self, shape: FieldShape, value: str) -> None:
        local = self.source.fresh("items")
        self.source.line(f"{local} = {value}")
        fixed = FIXED_TYPES.get(shape.kafka_type)
        if fixed is not None and fixed.to_wire is None and not shape.is_nullable:
            self.run.add_array(fixed.code, local, is_compact=self.is_flexible)
            return
        self._length(local, "i", shape.is_nullable)
        with self.source.block(f"for item in {local}:"):
            self._item(shape)

    def _item(self, shape: FieldShape) -> None:
        if shape.entity is not None:
            encoder = self.source.name(encoder_of(shape.entity), "encode_entity")
            self.source.line(f"{encoder}(item, append)")
        elif shape.kafka_type in FIXED_TYPES:
            self._field(shape._replace(is_array=False), "item")
            self.run.flush()
        else:
            convert = ".encode()" if shape.kafka_type == "string" else ""
            if self.is_flexible:
                self.source.line(f"write_compact(item{convert}, append)")
            else:
                code = self.source.name(
                    struct.Struct(f">{_LENGTH_CODES[shape.kafka_type]}").pack, "pack"
                )
                self.source.line(f"write_classic(item{convert}, append, {code})")

    def _tags(self, shapes: list[FieldShape]) -> None:
        """The number of tagged fields that differ from their defaults, then those, in order of
        tag."""
        if not self.is_flexible:
            return
        if not shapes:
            self.run.add_zero()
            return
        self.run.flush()
        self.source.line("outer, tags = append, []")
        for shape in shapes:
            self._tag(shape)
        with self.source.block("if tags:"):
            self.source.line("append(uvarint(len(tags) // 2) + b''.join(tags))")
        with self.source.block("else:"):
            self.source.line("append(b'\\0')")

    def _tag(self, shape: FieldShape) -> None:
        default = self.source.name(shape.default, "default")
        self.source.line(f"value = message.{shape.name}")
        with self.source.block(f"if value is not {default} and value != {default}:"):
            self.source.line("encoded = []")
            self.source.line("append = encoded.append")
            # A nullable tag is absent if it is null, so its value is encoded as not nullable.
            self._field(shape._replace(is_nullable=False), "value")
            self.run.flush()
            self.source.line("append = outer")
            self.source.line("encoded = b''.join(encoded)")
            self.source.line(f"tags.append(uvarint({shape.tag}) + uvarint(len(encoded)))")
            self.source.line("tags.append(encoded)")


def _write_compact(value: bytes, append: Append) -> None:
    append(encode_unsigned_varint(len(value) + 1))
    append(value)


def _write_classic(value: bytes, append: Append, pack_length: Callable[[int], bytes]) -> None:
    append(pack_length(len(value)))
    append(value)
