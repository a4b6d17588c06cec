"""Decodes Protobuf values to columns and back, in Spark's Python workers, through Arrow.

A value that does not decode puts the reason into the last column instead of raising an error. With
a registry's frame, the indexes of the message follow the schema id.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.spark.codec.avro_values import arrow_function
from penstock.spark.codec.protobuf_types import is_map, load_message

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_MAGIC = 0
_PREFIX_BYTES = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def protobuf_decoder(
    descriptor: bytes, name: str, is_framed: bool, result: "StructType"
) -> "Callable[[Column], Column]":
    """Binary to a struct whose last field says what is wrong, or is null."""
    from pyspark.sql.pandas.types import to_arrow_type

    arrow_type = to_arrow_type(result, timezone="UTC")

    def decode(values: "pa.Array") -> "pa.Array":
        return decode_messages(values, descriptor, name, is_framed, arrow_type)

    return arrow_function(decode, result)


def protobuf_encoder(
    descriptor: bytes, name: str, schema_id: int | None
) -> "Callable[[Column], Column]":
    def encode(rows: "pa.Array") -> "pa.Array":
        return encode_messages(rows, descriptor, name, schema_id)

    return arrow_function(encode, "binary")


def decode_messages(
    values: "pa.Array", descriptor: bytes, name: str, is_framed: bool, result: "pa.StructType"
) -> "pa.Array":
    import pyarrow as pa

    factory, bad = _class_of(descriptor, name), result.field(result.num_fields - 1).name

    def decode(value: bytes | None) -> Mapping[str, Any] | None:
        if value is None:
            return None
        try:
            body = _body_of(value, factory.DESCRIPTOR) if is_framed else value
            return _row_of(factory.FromString(body))
        except Exception as error:  # arbitrary bytes may fail in any way
            return {bad: f"not Protobuf of this schema: {type(error).__name__}: {error}"}

    return pa.array([decode(value) for value in values.to_pylist()], result)


def encode_messages(
    rows: "pa.Array", descriptor: bytes, name: str, schema_id: int | None
) -> "pa.Array":
    import pyarrow as pa

    factory, frame = _class_of(descriptor, name), b""
    if schema_id is not None:
        indexes = _written_indexes(_indexes_of(factory.DESCRIPTOR))
        frame = bytes([_MAGIC]) + schema_id.to_bytes(4, "big") + indexes
    encoded = []
    for row in rows.to_pylist():
        message = factory()
        _fill(message, row)
        encoded.append(frame + message.SerializeToString())
    return pa.array(encoded, pa.binary())


@cache
def _class_of(descriptor: bytes, name: str) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(load_message(descriptor, name))


def _body_of(value: bytes, descriptor: Any) -> bytes:
    """The message behind schema id and indexes. Raises ValueError if it is another message."""
    if len(value) <= _PREFIX_BYTES or value[0] != _MAGIC:
        raise ValueError("does not begin with a registry's schema id")
    count, position = _read_number(value, _PREFIX_BYTES)
    indexes = []
    for _ in range(count):
        index, position = _read_number(value, position)
        indexes.append(index)
    if (indexes or [0]) != _indexes_of(descriptor):
        raise ValueError(f"another message of the schema: {indexes or [0]}")
    return value[position:]


def _indexes_of(descriptor: Any) -> list[int]:
    """Where the message stands in its file, from the outermost one inwards."""
    outer = descriptor.containing_type
    if outer is not None:
        siblings = [inner.name for inner in outer.nested_types]
        return [*_indexes_of(outer), siblings.index(descriptor.name)]
    return [list(descriptor.file.message_types_by_name).index(descriptor.name)]


def _written_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(_write_number(number) for number in (len(indexes), *indexes))


def _write_number(number: int) -> bytes:
    """A zigzag varint."""
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


def _read_number(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1, position
        shift += 7
        if shift > 35:
            raise ValueError("a message index is too long")


def _row_of(message: Any) -> dict[str, Any]:
    return {field.name: _column_of(message, field) for field in message.DESCRIPTOR.fields}


def _column_of(message: Any, field: Any) -> Any:
    if is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return [(key, _value_of(item, entry)) for key, item in getattr(message, field.name).items()]
    if field.is_repeated:
        return [_value_of(item, field) for item in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value_of(getattr(message, field.name), field)


def _value_of(value: Any, field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return _row_of(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        member = field.enum_type.values_by_number.get(value)
        return str(value) if member is None else member.name
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal(value)
    return value


def _fill(message: Any, row: Mapping[str, Any]) -> None:
    """Raises ValueError for a column that the message lacks."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if name not in fields:
            raise ValueError(f"column {name!r} is no field of {message.DESCRIPTOR.full_name}")
        if value is not None:
            _set(message, fields[name], value)


def _set(message: Any, field: Any, value: Any) -> None:
    if is_map(field):
        entry = field.message_type.fields_by_name["value"]
        for key, item in value:
            if entry.cpp_type == entry.CPPTYPE_MESSAGE:
                _fill_message(getattr(message, field.name)[key], entry, item)
            else:
                getattr(message, field.name)[key] = _plain(entry, item)
    elif field.is_repeated:
        for item in value:
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                _fill_message(getattr(message, field.name).add(), field, item)
            else:
                getattr(message, field.name).append(_plain(field, item))
    elif field.cpp_type == field.CPPTYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill_message(inner, field, value)
    else:
        setattr(message, field.name, _plain(field, value))


def _fill_message(inner: Any, field: Any, value: Any) -> None:
    if field.message_type.full_name == "google.protobuf.Timestamp":
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        inner.seconds = since.days * 86_400 + since.seconds
        inner.nanos = since.microseconds * 1000
    else:
        _fill(inner, value)


def _plain(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM:
        member = field.enum_type.values_by_name.get(value)
        if member is None:
            raise ValueError(f"{value!r} is no value of {field.enum_type.full_name}")
        return member.number
    return int(value) if isinstance(value, Decimal) else value
