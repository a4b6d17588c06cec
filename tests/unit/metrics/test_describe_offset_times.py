"""DescribeOffsetTimes: when records were written, told by a leader to whoever may describe them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.apis.harness import ApiHarness, batch, read_part

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.registry import APIS
from penstock.metrics.describe_offset_times import API
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_offset_times import (
    MAX_OFFSETS,
    OffsetTime,
    OffsetTimes,
    WantedTime,
    decode_describe_offset_times,
    decode_offset_times,
    encode_describe_offset_times,
    encode_offset_times,
)
from penstock.protocol.headers import encode_request_header, read_response_header
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, PrivateKey
from penstock.protocol.private_response import PrivateResponse, decode_private_response
from penstock.security.authorizer import AclOperation, ResourceType

KEY = PrivateKey.DESCRIBE_OFFSET_TIMES
INT64 = st.integers(-(2**63), 2**63 - 1)
TPS = st.builds(TopicPartition, st.text(max_size=9), st.integers(-(2**31), 2**31 - 1))
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path / "broker")
    services = replace(harness.services, client_apis={KEY: lambda: API})
    harness.dispatcher = Dispatcher(APIS, services)
    yield harness
    harness.close()


def ask(harness: ApiHarness, *wanted: WantedTime, version: int = 0) -> PrivateResponse:
    header = encode_request_header(KEY, version, 1, "test", FIRST_FLEXIBLE_OF_ALL)
    in_flight = harness.send_frame(bytearray(header + encode_describe_offset_times(wanted)))
    frame = b"".join(map(read_part, in_flight.parts))
    _, body = read_response_header(memoryview(frame)[4:], KEY, version, FIRST_FLEXIBLE_OF_ALL)
    return decode_private_response(body)


def ask_times(harness: ApiHarness, *wanted: WantedTime) -> list[OffsetTime]:
    response = ask(harness, *wanted)
    assert response.code is ErrorCode.NONE
    times = decode_offset_times(response.payload)
    assert times.now_ms == harness.services.wall_ms()
    return list(times.times)


def test_a_leader_tells_when_the_records_at_offsets_were_written(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"first", at_ms=1_000), batch(b"second", at_ms=2_000))
    end, missing = WantedTime(ORDERS, 2), WantedTime(TopicPartition("missing", 0), 0)
    times = ask_times(harness, WantedTime(ORDERS, 0), WantedTime(ORDERS, 1), end, missing)
    assert times == [OffsetTime(ORDERS, 1_000), OffsetTime(ORDERS, 2_000)]


def test_a_topic_that_may_not_be_described_is_left_out(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"first"))
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert ask_times(harness, WantedTime(ORDERS, 0)) == []


def test_too_many_offsets_are_refused(harness: ApiHarness) -> None:
    response = ask(harness, *[WantedTime(ORDERS, offset) for offset in range(MAX_OFFSETS + 1)])
    assert response.code is ErrorCode.INVALID_REQUEST
    assert "at most 1000 offsets" in str(response.message)


def test_an_unknown_version_is_answered_with_the_supported_ones(harness: ApiHarness) -> None:
    response = ask(harness, version=7)
    assert response.code is ErrorCode.UNSUPPORTED_VERSION
    assert (response.first_version, response.last_version) == (0, 0)


@given(
    st.lists(st.builds(WantedTime, TPS, INT64), max_size=5),
    st.builds(
        OffsetTimes, INT64, st.lists(st.builds(OffsetTime, TPS, INT64), max_size=5).map(tuple)
    ),
)
def test_requests_and_payloads_survive_a_round_trip(
    wanted: list[WantedTime], times: OffsetTimes
) -> None:
    assert decode_describe_offset_times(encode_describe_offset_times(wanted)) == wanted
    assert decode_offset_times(encode_offset_times(times)) == times
