"""Random messages of every schema, built from kio's dataclasses alone.

Our own message classes are what the tests check, so they are not used here.
"""

import random
import types
import typing
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType
from tests.unit.protocol.schema_table_from_kio import messages

from penstock.protocol.schemas import WireMessage, get_request_schema, get_response_schema

_INTEGER_BITS = {
    "int8": (8, True),
    "int16": (16, True),
    "int32": (32, True),
    "int64": (64, True),
    "uint8": (8, False),
    "uint16": (16, False),
    "uint32": (32, False),
    "uint64": (64, False),
}
_ERRORS = list(ErrorCode)
_TEXTS = ["", "a", "topic-1", "grüße", "日本", "x" * 126, "x" * 127, "é" * 200, "\0"]


@cache
def all_schemas() -> list[type]:
    """Return kio's class of every version of every request and response."""
    return [schema for versions in messages().values() for schema in versions.values()]


def kio_class(schema: type[WireMessage]) -> Any:
    return messages()[schema.__name__][schema.__version__]


def our_class(schema: Any) -> type[WireMessage]:
    is_request = schema.__type__ is EntityType.request
    get_schema = get_request_schema if is_request else get_response_schema
    return get_schema(schema.__api_key__, schema.__version__)


def ours(message: Any) -> Any:
    """Convert kio's message to one of ours."""
    return _convert(message, our_class(type(message)))


def _convert(message: Any, entity: type[WireMessage]) -> WireMessage:
    values = {field.name: getattr(message, field.name) for field in entity.__fields__}
    for field in entity.__fields__:
        value = values[field.name]
        if field.entity is not None and value is not None:
            values[field.name] = (
                tuple(_convert(item, field.entity) for item in value)
                if field.is_array
                else _convert(value, field.entity)
            )
    return entity(**values)


def title(schema: Any) -> str:
    return f"{schema.__name__} v{schema.__version__}"


def sample(schema: type, source: random.Random, *, width: int = 3) -> Any:
    """Draw a message of this class, kio's or ours.

    `width` bounds the entries of arrays, except of a few arrays of numbers and strings.
    """
    if issubclass(schema, WireMessage):
        return ours(sample(kio_class(schema), source, width=width))
    dataclass: Any = schema
    values = {
        field.name: _value(field.type, field.metadata.get("kafka_type"), source, width)
        for field in fields(dataclass)
        if "tag" not in field.metadata or source.random() < 0.5 or not _has_default(field)
    }
    return schema(**values)


def samples(schema: type, source: random.Random, count: int) -> Iterator[Any]:
    return (sample(schema, source, width=source.choice((0, 1, 3))) for _ in range(count))


def _has_default(field: Any) -> bool:
    return type(field.default).__name__ != "_MISSING_TYPE"


def _value(annotation: Any, kafka_type: str | None, source: random.Random, width: int) -> Any:
    if typing.get_origin(annotation) is types.UnionType:
        if source.random() < 0.3:
            return None
        (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        count = source.randint(0, width)
        if not is_dataclass(inner) and source.random() < 0.05:
            count = source.choice((126, 127, 128, 300))
        return tuple(_value(inner, kafka_type, source, width) for _ in range(count))
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return sample(annotation, source, width=width)
    assert kafka_type is not None
    return _primitive(kafka_type, source)


def _primitive(kafka_type: str, source: random.Random) -> Any:
    if kafka_type in _INTEGER_BITS:
        return _integer(*_INTEGER_BITS[kafka_type], source)
    makers: dict[str, Callable[[], Any]] = {
        "bool": lambda: source.random() < 0.5,
        "float64": lambda: source.uniform(-1e9, 1e9),
        "string": lambda: source.choice(_TEXTS),
        "bytes": lambda: source.randbytes(source.choice((0, 1, 126, 127, 128, 20_000))),
        "records": lambda: source.randbytes(source.choice((0, 1, 126, 127, 128, 20_000))),
        "uuid": lambda: uuid.UUID(int=source.getrandbits(128) | 1),
        "error_code": lambda: source.choice(_ERRORS),
        "timedelta_i32": lambda: timedelta(milliseconds=_integer(32, True, source)),
        "timedelta_i64": lambda: timedelta(milliseconds=source.randint(-1, 2**42)),
        "datetime_i64": lambda: datetime.fromtimestamp(source.randrange(2**31), UTC),
    }
    return makers[kafka_type]()


def _integer(bits: int, is_signed: bool, source: random.Random) -> int:
    low = -(2 ** (bits - 1)) if is_signed else 0
    high = 2 ** (bits - 1) - 1 if is_signed else 2**bits - 1
    return source.choice((low, high, 0, 1, source.randint(low, high)))
