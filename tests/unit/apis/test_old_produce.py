"""Produce 0-2, with unsupported message formats: decoded and refused, with exact response bytes."""

import struct

import pytest
from tests.unit.apis.harness import ApiHarness, FakeConnection

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.network.in_flight_request import InFlightRequest
from penstock.protocol.malformed import MalformedRequest
from penstock.security.authorizer import AclOperation, ResourceType

VERSIONS = range(3)
CORRELATION_ID = b"\0\0\0\x07"
# One message of format 0: offset, size, CRC, magic, attributes, no key, the value "v".
MESSAGE = struct.pack(">qiIbbiic", 0, 15, 0x12345678, 0, 0, -1, 1, b"v")
UNSUPPORTED, DENIED = b"\0\x2b", b"\0\x1d"  # 43 and 29
UNKNOWN = b"\xff" * 8


def ask(
    harness: ApiHarness, version: int, topics: bytes, *, acks: int = 1, connection: FakeConnection
) -> InFlightRequest:
    head = b"\0\0" + struct.pack(">h", version) + CORRELATION_ID + b"\0\1c"
    body = struct.pack(">hi", acks, 1000) + topics
    return harness.send_frame(bytearray(head + body), connection)


def topic(name: bytes, *partitions: int) -> bytes:
    entries = b"".join(
        struct.pack(">ii", partition, len(MESSAGE)) + MESSAGE for partition in partitions
    )
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions)) + entries


def answer(in_flight: InFlightRequest) -> bytes:
    assert in_flight.is_answered
    return b"".join(bytes(part) for part in in_flight.parts)  # type: ignore[arg-type]


ORDERS = b"\0\6orders"
SECRET = b"\0\6secret"
ONE, TWO = b"\0\0\0\1", b"\0\0\0\2"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            0,
            b"\0\0\0\x4a" + CORRELATION_ID + TWO
            + ORDERS + TWO + b"\0\0\0\0" + UNSUPPORTED + UNKNOWN + ONE + UNSUPPORTED + UNKNOWN
            + SECRET + ONE + b"\0\0\0\0" + DENIED + UNKNOWN,
        ),
        (
            1,
            b"\0\0\0\x4e" + CORRELATION_ID + TWO
            + ORDERS + TWO + b"\0\0\0\0" + UNSUPPORTED + UNKNOWN + ONE + UNSUPPORTED + UNKNOWN
            + SECRET + ONE + b"\0\0\0\0" + DENIED + UNKNOWN
            + b"\0\0\0\0",
        ),
        (
            2,
            b"\0\0\0\x66" + CORRELATION_ID + TWO
            + ORDERS + TWO + b"\0\0\0\0" + UNSUPPORTED + UNKNOWN + UNKNOWN
            + ONE + UNSUPPORTED + UNKNOWN + UNKNOWN
            + SECRET + ONE + b"\0\0\0\0" + DENIED + UNKNOWN + UNKNOWN
            + b"\0\0\0\0",
        ),
    ],
    ids=("v0", "v1", "v2"),
)  # fmt: skip
def test_every_partition_is_refused_in_the_layout_of_its_version(
    harness: ApiHarness, version: int, expected: bytes
) -> None:
    harness.make_topic("orders", 2)
    harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, "secret")
    topics = TWO + topic(b"orders", 0, 1) + topic(b"secret", 0)
    in_flight = ask(harness, version, topics, connection=harness.connection)
    assert answer(in_flight) == expected
    assert harness.replicas.get(TopicPartition("orders", 0)).log_end_offset == 0
    assert not harness.connection.is_closed


@pytest.mark.parametrize("version", VERSIONS)
def test_without_write_permission_existence_is_not_revealed(
    harness: ApiHarness, version: int
) -> None:
    harness.guard.denies_all = True
    harness.make_topic("there")
    returned = [
        answer(ask(harness, version, ONE + topic(name, 0), connection=harness.connection))
        for name in (b"there", b"never")
    ]
    assert returned[0].replace(b"there", b"never") == returned[1]
    assert DENIED in returned[0]
    assert (AclOperation.WRITE, ResourceType.TOPIC, "there") in harness.guard.checked


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_0_closes_the_connection(harness: ApiHarness, version: int) -> None:
    ask(harness, version, ONE + topic(b"orders", 0), acks=0, connection=harness.connection)
    assert harness.connection.is_closed
    reason = str(harness.connection.closed_because)
    assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT.name in reason
    assert "orders" in reason


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_request_gets_an_empty_response(harness: ApiHarness, version: int) -> None:
    quiet = ask(harness, version, bytes(4), acks=0, connection=harness.connection)
    assert (answer(quiet), harness.connection.is_closed) == (b"", False)
    returned = answer(ask(harness, version, bytes(4), connection=harness.connection))
    throttle_time = b"" if version == 0 else bytes(4)
    assert returned[4:] == CORRELATION_ID + bytes(4) + throttle_time


@pytest.mark.parametrize("version", VERSIONS)
def test_malformed_old_requests_raise(harness: ApiHarness, version: int) -> None:
    whole = ONE + topic(b"orders", 0)
    for end in range(len(whole)):
        with pytest.raises(MalformedRequest):
            ask(harness, version, whole[:end], connection=FakeConnection())
