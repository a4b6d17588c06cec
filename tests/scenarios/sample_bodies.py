"""A request body with one element in every array, and the positions of its counts and lengths.

It has its own writer, because the product's rejects invalid values.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.apis.registry import APIS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import encode_request_header
from penstock.protocol.messages import decode_request, get_request_schema
from penstock.protocol.produce_request import OLD_VERSIONS
from penstock.protocol.schemas import FieldShape, describe_fields
from penstock.protocol.wire_types import FIXED_TYPES

What = Literal["count", "text", "records", "tags"]
Patch = tuple[str, bytes]  # name of the field, and the bytes to write over it

_CLASSIC_SIZES: dict[What, int] = {"count": 4, "text": 2, "records": 4}
_HUGE_VARINT = b"\xff\xff\xff\xff\x0f"  # 2^32 - 1
_BAD_VARINTS: tuple[Patch, ...] = (
    ("2^32-1", _HUGE_VARINT),
    ("2^31", b"\x80\x80\x80\x80\x08"),
    ("a varint of 6 bytes", b"\xff\xff\xff\xff\xff\x01"),
    ("a varint without end", b"\xff" * 12),
)


class SizeField(NamedTuple):
    position: int
    what: What
    is_flexible: bool


class Sample(NamedTuple):
    key: ApiKey
    version: int
    body: bytes
    size_fields: tuple[SizeField, ...]

    def frame(self, body: bytes) -> bytes:
        """A frame with this body instead."""
        sent = encode_request_header(self.key, self.version, 1, "sample") + body
        return len(sent).to_bytes(4, "big") + sent

    def patched(self, field: SizeField, patch: bytes) -> bytes:
        width = 1 if field.is_flexible else _CLASSIC_SIZES[field.what]
        body = self.body[: field.position] + patch + self.body[field.position + width :]
        return self.frame(body)


def samples() -> Iterator[Sample]:
    """One per served version that has a schema."""
    for key, api in sorted(APIS.items()):
        for version in sorted(
            set(api.versions) - set(OLD_VERSIONS if key == ApiKey.PRODUCE else ())
        ):
            writer = _Writer(get_request_schema(key, version))
            decode_request(key, version, writer.body)  # the body is valid before it is patched
            yield Sample(key, version, bytes(writer.body), tuple(writer.size_fields))


def bad_patches(field: SizeField) -> tuple[Patch, ...]:
    """Invalid values of such a field."""
    if field.what == "tags":
        return (*_BAD_VARINTS, ("a tag longer than the request", b"\x01\x63\xff\x7f"))
    if field.is_flexible:
        return _BAD_VARINTS
    bits = 8 * _CLASSIC_SIZES[field.what]
    largest = (1 << (bits - 1)) - 1
    return tuple(
        (str(number), number.to_bytes(bits // 8, "big", signed=True))
        for number in (largest, -2, -largest - 1)
    )


class _Writer:
    def __init__(self, entity: type) -> None:
        self.body = bytearray()
        self.size_fields: list[SizeField] = []
        self._entity(entity)

    def _entity(self, entity: type) -> None:
        is_flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
        for shape in describe_fields(entity):
            if shape.tag is None:
                self._field(shape, is_flexible)
        if is_flexible:
            self._mark("tags", is_flexible)
            self.body.append(0)

    def _field(self, shape: FieldShape, is_flexible: bool) -> None:
        if shape.is_array:
            self._length("count", 1, is_flexible)
            self._value(shape._replace(is_nullable=False), is_flexible)
        else:
            self._value(shape, is_flexible)

    def _value(self, shape: FieldShape, is_flexible: bool) -> None:
        if shape.entity is not None:
            if shape.is_nullable:
                self.body.append(1)
            self._entity(shape.entity)
        elif shape.kafka_type in FIXED_TYPES:
            self.body += bytes(FIXED_TYPES[shape.kafka_type].size)
        else:
            what: What = "text" if shape.kafka_type == "string" else "records"
            self._length(what, 1, is_flexible)
            self.body += b"x"

    def _length(self, what: What, length: int, is_flexible: bool) -> None:
        self._mark(what, is_flexible)
        if is_flexible:
            self.body.append(length + 1)
        else:
            self.body += length.to_bytes(_CLASSIC_SIZES[what], "big")

    def _mark(self, what: What, is_flexible: bool) -> None:
        self.size_fields.append(SizeField(len(self.body), what, is_flexible))
