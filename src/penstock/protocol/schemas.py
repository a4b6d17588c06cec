"""kio's message classes: imported on first use, and their fields described for code generation.

Only the dataclasses are taken from kio, neither its reader nor its writer: see
docs/decisions/0012-wire-messages.md.
"""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

from penstock.model import values
from penstock.protocol.api_keys import describe_api, find_api_key
from penstock.protocol.malformed import UnknownSchema


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """kio imports hypothesis where that is installed, for 270 ms; a broker has no use for it."""
    if "hypothesis" in sys.modules:
        yield
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment] # the import system's "not there"
    try:
        yield
    finally:
        del sys.modules["hypothesis"]


_library_dataclass = dataclasses.dataclass


@contextmanager
def _with_lean_classes() -> Iterator[None]:
    """kio's modules take `dataclass` from the library when they are imported. While they are, it is
    ours: half the time and a third of the memory. Whoever else takes it meanwhile, on another
    thread, gets classes that do the same."""
    dataclasses.dataclass = values.dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = _library_dataclass


with _without_hypothesis():
    from kio.schema.errors import ErrorCode as WireErrorCode

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload

__all__ = [
    "ENTITY",
    "FieldShape",
    "WireErrorCode",
    "describe_fields",
    "get_request_schema",
    "get_response_schema",
]


@cache
def get_request_schema(api_key: int, version: int) -> "type[RequestPayload]":
    schema: type[RequestPayload] = _import(api_key, version, "Request")
    return schema


@cache
def get_response_schema(api_key: int, version: int) -> "type[ResponsePayload]":
    schema: type[ResponsePayload] = _import(api_key, version, "Response")
    return schema


def _import(api_key: int, version: int, kind: str) -> Any:
    known = find_api_key(api_key)
    if known is not None:
        try:
            with _with_lean_classes():
                module = import_module(f"kio.schema.{known.name.lower()}.v{version}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("kio.schema."):
                raise  # kio itself is not whole
        else:
            return getattr(module, known.title + kind)
    raise UnknownSchema(f"there is no schema for {describe_api(api_key, version)}")


ENTITY = "entity"


class FieldShape(NamedTuple):
    """How one field stands on the wire."""

    name: str
    kafka_type: str  # ENTITY, or a primitive
    entity: type | None
    is_array: bool
    is_nullable: bool  # of an array, the array itself
    tag: int | None
    default: object  # what an absent tag means; MISSING for fields that are always there


def describe_fields(entity: type) -> list[FieldShape]:
    return [_describe(field) for field in fields(entity)]


def _describe(field: Field[Any]) -> FieldShape:
    inner, is_nullable = _split_optional(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _split_optional(get_args(inner)[0])
    entity: type | None = inner if isinstance(inner, type) and is_dataclass(inner) else None
    return FieldShape(
        name=field.name,
        kafka_type=ENTITY if entity else field.metadata["kafka_type"],
        entity=entity,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=_default(field) if "tag" in field.metadata else MISSING,
    )


def _split_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (inner,) = (each for each in get_args(annotation) if each is not NoneType)
    return inner, True


def _default(field: Field[Any]) -> object:
    """What an absent tag means: the schema's default, or its type's zero."""
    if field.default is not MISSING:
        return field.default
    entity: Any = field.type
    if is_dataclass(entity):
        build: Any = entity
        return build(**{each.name: _default(each) for each in fields(entity)})
    return _ZEROS[field.metadata["kafka_type"]]


_ZEROS = {"int8": 0, "int16": 0, "int32": 0, "int64": 0, "bool": False, "string": ""}
