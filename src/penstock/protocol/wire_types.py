"""Kafka's primitive types: their struct codes, and the conversion of Python values to and from
them.

Invariant: `to_wire` and `from_wire` name functions of `CONVERSIONS`, which generated code calls.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import calcsize
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from penstock.model.errors import known_error

_ZERO_UUID = bytes(16)
_ZERO_DELTA = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_MS = timedelta.max // _MILLISECOND - 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FixedType(NamedTuple):
    code: str
    to_wire: str | None = None  # None: the value packs as it is
    from_wire: str | None = None

    @property
    def size(self) -> int:
        return calcsize(f">{self.code}")


FIXED_TYPES: Mapping[str, FixedType] = MappingProxyType(
    {
        "bool": FixedType("?"),
        "int8": FixedType("b"),
        "int16": FixedType("h"),
        "int32": FixedType("i"),
        "int64": FixedType("q"),
        "uint8": FixedType("B"),
        "uint16": FixedType("H"),
        "uint32": FixedType("I"),
        "uint64": FixedType("Q"),
        "float64": FixedType("d"),
        "error_code": FixedType("h", None, "known_error"),
        "uuid": FixedType("16s", "bytes_of_uuid", "uuid_of"),
        "timedelta_i32": FixedType("i", "ms_of_delta", "delta_of"),
        "timedelta_i64": FixedType("q", "ms_of_delta", "delta_of"),
        "datetime_i64": FixedType("q", "ms_of_time", "time_of"),
    }
)


def bytes_of_uuid(value: UUID | None) -> bytes:
    return _ZERO_UUID if value is None else value.bytes


@lru_cache(maxsize=4096)  # the same topic ids recur; building one takes 1.5 µs
def uuid_of(raw: bytes) -> UUID | None:
    return None if raw == _ZERO_UUID else UUID(bytes=raw)


def ms_of_delta(value: timedelta) -> int:
    return value // _MILLISECOND


def delta_of(ms: int) -> timedelta:
    """A duration beyond Python's range (2.7 million years) becomes the longest possible."""
    if not -_LONGEST_MS <= ms <= _LONGEST_MS:
        ms = _LONGEST_MS if ms > 0 else -_LONGEST_MS
    return timedelta(milliseconds=ms) if ms else _ZERO_DELTA


def ms_of_time(value: datetime | None) -> int:
    return -1 if value is None else round(value.timestamp() * 1000)


def time_of(ms: int) -> datetime | None:
    return None if ms == -1 else _EPOCH + timedelta(milliseconds=ms)


CONVERSIONS: Mapping[str, object] = MappingProxyType(
    {
        "bytes_of_uuid": bytes_of_uuid,
        "uuid_of": uuid_of,
        "ms_of_delta": ms_of_delta,
        "delta_of": delta_of,
        "ms_of_time": ms_of_time,
        "time_of": time_of,
        "known_error": known_error,
    }
)
