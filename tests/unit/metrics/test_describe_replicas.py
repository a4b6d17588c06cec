"""DescribeReplicas: what a leader says of itself and its followers, and who may ask."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.apis.harness import ApiHarness, read_part

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.registry import APIS
from penstock.metrics.describe_replicas import API
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_replicas import (
    MAX_PARTITIONS,
    DescribedFollower,
    DescribedReplica,
    ReplicaRole,
    decode_describe_replicas,
    decode_replicas,
    encode_describe_replicas,
    encode_replicas,
)
from penstock.protocol.headers import encode_request_header, read_response_header
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, PrivateKey
from penstock.protocol.private_response import PrivateResponse, decode_private_response
from penstock.security.authorizer import AclOperation, ResourceType

KEY = PrivateKey.DESCRIBE_REPLICAS
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TPS = st.builds(TopicPartition, st.text(max_size=9), INT32)
FOLLOWERS = st.builds(DescribedFollower, INT32, INT64, INT64, INT64)
REPLICAS = st.builds(
    DescribedReplica,
    TPS,
    st.sampled_from(ReplicaRole),
    INT32,
    *[INT64] * 5,
    st.none() | st.text(max_size=9),
    st.lists(FOLLOWERS, max_size=3).map(tuple),
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path / "broker")
    services = replace(harness.services, client_apis={KEY: lambda: API})
    harness.dispatcher = Dispatcher(APIS, services)
    yield harness
    harness.close()


def ask(harness: ApiHarness, *partitions: TopicPartition, version: int = 0) -> PrivateResponse:
    header = encode_request_header(KEY, version, 1, "test", FIRST_FLEXIBLE_OF_ALL)
    in_flight = harness.send_frame(bytearray(header + encode_describe_replicas(partitions)))
    frame = b"".join(map(read_part, in_flight.parts))
    _, body = read_response_header(memoryview(frame)[4:], KEY, version, FIRST_FLEXIBLE_OF_ALL)
    return decode_private_response(body)


def test_a_leader_describes_the_partitions_that_it_has(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    here, elsewhere = TopicPartition("orders", 0), TopicPartition("missing", 0)
    response = ask(harness, here, elsewhere, here)
    assert response.code is ErrorCode.NONE
    (replica,) = decode_replicas(response.payload)
    assert (replica.tp, replica.role, replica.failure) == (here, ReplicaRole.LEADER, None)
    assert (replica.log_start_offset, replica.high_watermark, replica.log_end_offset) == (0, 0, 0)


def test_a_topic_that_may_not_be_described_is_left_out(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    response = ask(harness, TopicPartition("orders", 0))
    assert (response.code, decode_replicas(response.payload)) == (ErrorCode.NONE, [])


def test_too_many_partitions_are_refused(harness: ApiHarness) -> None:
    many = [TopicPartition("t", number) for number in range(MAX_PARTITIONS + 1)]
    response = ask(harness, *many)
    assert response.code is ErrorCode.INVALID_REQUEST
    assert "at most 1000 partitions" in str(response.message)


def test_an_unknown_version_is_answered_with_the_supported_ones(harness: ApiHarness) -> None:
    response = ask(harness, version=7)
    assert response.code is ErrorCode.UNSUPPORTED_VERSION
    assert (response.first_version, response.last_version) == (0, 0)


@given(st.lists(TPS, max_size=5), st.lists(REPLICAS, max_size=5))
def test_requests_and_payloads_survive_a_round_trip(
    partitions: list[TopicPartition], replicas: list[DescribedReplica]
) -> None:
    assert decode_describe_replicas(encode_describe_replicas(partitions)) == partitions
    assert decode_replicas(encode_replicas(replicas)) == replicas
