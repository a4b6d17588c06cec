"""Fuzzed frames of every served API and version, valid or damaged, from a seed.

No frame may harm a healthy client legitimately: none names its topic or changes a broker config.
"""

import math
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tests.properties.test_any_request import BITS, damage, draw_number, draw_records

from penstock.apis.registry import APIS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import encode_request_header
from penstock.protocol.produce_request import OLD_VERSIONS
from penstock.protocol.schemas import FieldShape, describe_fields, get_request_schema

TOPICS = ("orders", "payments")  # created by the test
NAMES = (
    *TOPICS,
    *TOPICS,
    "absent",
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "compact",
    "60000",
    "1",
    "",
    "a b",
    "../x",
    "a\0b",
    "\u00fc",
    "__consumer_offsets",
    "__transaction_state",
    "x" * 300,
)
PARTITION_COUNTS = (-1, 0, 1, 2, 3, 2**31 - 1)  # small, so that the disk does not fill up
WAITS_MS = (0, 0, 0, 0, 0, 0, 1, 5, -1, 2**31 - 1)
RATES = (0.0, 0.5, 1.0, -1.0, 1e300, math.inf, math.nan)
DAMAGED = 0.6


class AnyFrame(NamedTuple):
    data: bytes  # including the size
    key: ApiKey
    version: int
    correlation_id: int
    is_whole: bool


def any_frames(seed: int) -> Iterator[AnyFrame]:
    """An endless iterator; every served version has its turn."""
    chance = random.Random(seed)
    served = [(key, version) for key, api in sorted(APIS.items()) for version in api.versions]
    correlation_id = 0
    while True:
        chance.shuffle(served)
        for key, version in served:
            correlation_id += 1
            yield _draw(key, version, correlation_id, chance)


def _draw(key: ApiKey, version: int, correlation_id: int, chance: random.Random) -> AnyFrame:
    frame = bytearray(_encode(key, version, correlation_id, chance))
    is_whole = chance.random() >= DAMAGED and not _is_old(key, version)
    if not is_whole:
        for _ in range(chance.choice((1, 1, 2, 5))):
            damage(frame, chance)
            frame = frame or bytearray(1)
    size = len(frame)
    if not is_whole and chance.random() < 0.05:
        size = draw_number(32, chance)
    data = size.to_bytes(4, "big", signed=True) + bytes(frame)
    return AnyFrame(data, key, version, correlation_id, is_whole)


def _encode(key: ApiKey, version: int, correlation_id: int, chance: random.Random) -> bytes:
    """The frame without its size."""
    if _is_old(key, version):
        return encode_request_header(key, version, correlation_id, "any") + chance.randbytes(40)
    message = draw_entity(get_request_schema(key, version), chance)
    return encode_request_frame(message, correlation_id=correlation_id, client_id="any")[4:]


def _is_old(key: ApiKey, version: int) -> bool:
    return key is ApiKey.PRODUCE and version in OLD_VERSIONS


def draw_entity(entity: Any, chance: random.Random) -> Any:
    return entity(**{field.name: _draw_field(field, chance) for field in describe_fields(entity)})


def _draw_field(shape: FieldShape, chance: random.Random) -> Any:
    if shape.is_nullable and chance.random() < 0.2:
        return None
    if shape.is_array:
        return tuple(_draw_value(shape, chance) for _ in range(chance.choice((0, 1, 1, 2, 4))))
    return _draw_value(shape, chance)


def _draw_value(shape: FieldShape, chance: random.Random) -> Any:
    kind = shape.kafka_type
    if shape.entity is not None:
        return draw_entity(shape.entity, chance)
    if shape.name in ("num_partitions", "count"):
        return chance.choice(PARTITION_COUNTS)
    if kind in BITS:
        return draw_number(BITS[kind], chance)
    if kind in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=chance.choice(WAITS_MS))
    if kind == "string":
        return chance.choice(NAMES)
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice(RATES)
    if kind == "uuid":
        return chance.choice((None, UUID(int=1), UUID(int=chance.getrandbits(128))))
    records = draw_records(chance)
    return records if records is not None or shape.is_nullable else b""
