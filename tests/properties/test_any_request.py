"""Requests of any content, and damaged ones, to a broker's handlers: each gets a readable response,
waits, or closes its connection. None raises anything but MalformedMessage, none leaks a file."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.profile import scaled
from tests.unit.apis.harness import ApiHarness, FakeConnection, Sent, batch, topic_id_of

from penstock.apis.registry import APIS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.produce_request import OLD_VERSIONS
from penstock.protocol.schemas import FieldShape, describe_fields, get_request_schema

# Admin requests are forwarded to a controller, and have a test of their own.
KEYS = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.OFFSET_DELETE,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
)
NAMES = ("orders", "orders", "payments", "absent", "", "a b", "ü", "__consumer_offsets", "x" * 300)
NUMBERS = (0, 0, 1, 2, 3, -1, -2, -3, -4, 7, 100, 1 << 20)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ROUNDS = scaled(test=20, verify=400, release=4000)


@pytest.fixture(name="harness")
def _bench(tmp_path: Path) -> Iterator[ApiHarness]:
    # However slow the machine is, no request is logged for it.
    harness = ApiHarness(tmp_path, settings={"logging.slow.request.ms": str(2**31 - 1)})
    harness.make_topic("orders", 3, epoch=2)
    harness.make_topic("payments", 1, configs={"cleanup.policy": "compact"})
    for partition in (0, 1):
        harness.fill("orders", *[batch(b"x" * 100, b"y") for _ in range(4)], partition=partition)
    yield harness
    harness.close()


@pytest.mark.parametrize("key", KEYS)
def test_any_request_is_answered_delayed_or_closes_its_connection(
    harness: ApiHarness, key: ApiKey, record_figure: Any
) -> None:
    chance = random.Random(key.value)
    waiting: list[Sent] = []
    without_schema = OLD_VERSIONS if key is ApiKey.PRODUCE else ()
    for version in sorted(set(APIS[key].versions) - set(without_schema)) * ROUNDS:
        message = draw_entity(get_request_schema(key, version), chance)
        frame = bytearray(encode_request_frame(message, correlation_id=7, client_id="any")[4:])
        if chance.random() < 0.4:
            damage(frame, chance)
        waiting += try_frame(harness, key, version, frame)
        record_figure("requests of any content", 1)
    harness.clock.advance_ms(2**31)
    assert all(sent.is_answered for sent in waiting)
    for sent in waiting:
        assert sent.reply is not None
    assert harness.replicas.fetch_purgatory.statistics().delayed == 0
    assert harness.replicas.produce_purgatory.statistics().delayed == 0
    assert held_files(harness) == 0
    assert harness.reports == []


def try_frame(harness: ApiHarness, key: ApiKey, version: int, frame: bytearray) -> list[Sent]:
    """Returns the request if it waits."""
    head = bytes(frame[:8])
    connection = FakeConnection()
    try:
        in_flight = harness.send_frame(frame, connection)
    except MalformedMessage:
        return []
    is_whole = head[:4] == bytes((0, key.value, 0, version))
    if not is_whole or connection.is_closed:  # damage made it a different request
        connection.close("enough")
        return []
    sent = Sent(in_flight, key, version, int.from_bytes(head[4:], "big", signed=True))
    if not in_flight.is_answered:
        return [sent]
    if sent.bytes:  # acks=0 has no response
        assert sent.reply is not None
    return []


def damage(frame: bytearray, chance: random.Random) -> None:
    how = chance.randrange(4)
    position = chance.randrange(len(frame))
    if how == 0:
        frame[position] ^= 1 << chance.randrange(8)
    elif how == 1:
        frame[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif how == 2:
        del frame[position:]
    else:
        frame[position:position] = chance.randbytes(chance.randrange(1, 5))


def held_files(harness: ApiHarness) -> int:
    return sum(
        segment.file.leases
        for log in harness.engine._logs.values()
        for segment in log.segments.starting_from(0)
    )


# -- messages ------------------------------------------------------------------------------


def draw_entity(entity: Any, chance: random.Random) -> Any:
    return entity(**{shape.name: draw_field(shape, chance) for shape in describe_fields(entity)})


def draw_field(shape: FieldShape, chance: random.Random) -> Any:
    if shape.is_nullable and chance.random() < 0.2:
        return None
    if shape.is_array:
        return tuple(draw_value(shape, chance) for _ in range(chance.choice((0, 1, 1, 2, 4))))
    return draw_value(shape, chance)


def draw_value(shape: FieldShape, chance: random.Random) -> Any:
    kind = shape.kafka_type
    if shape.entity is not None:
        return draw_entity(shape.entity, chance)
    if kind in BITS:
        return draw_number(BITS[kind], chance)
    if kind == "string":
        return chance.choice(NAMES)
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return chance.choice((None, topic_id_of("orders"), topic_id_of("nobody")))
    if kind == "timedelta_i32":
        return timedelta(milliseconds=draw_number(32, chance))
    if kind == "timedelta_i64":
        return timedelta(milliseconds=draw_number(50, chance))
    if kind == "bytes":
        return chance.randbytes(chance.choice((0, 1, 100)))
    assert kind == "records", kind
    return draw_records(chance)


def draw_number(bits: int, chance: random.Random) -> int:
    limit = 1 << (bits - 1)
    drawn = chance.choice((*NUMBERS, limit - 1, -limit, chance.randrange(-limit, limit)))
    return max(-limit, min(limit - 1, drawn))


def draw_records(chance: random.Random) -> bytes | None:
    drawn = chance.randrange(5)
    if drawn == 0:
        return None
    if drawn == 1:
        return chance.randbytes(chance.choice((0, 1, 60, 61, 200)))
    numbered = {"producer_id": 5, "producer_epoch": 0, "base_sequence": chance.randrange(3)}
    valid = batch(b"v", **(numbered if chance.random() < 0.5 else {}))
    if drawn == 2:
        valid[chance.randrange(len(valid))] ^= 1 << chance.randrange(8)
    return bytes(valid)
