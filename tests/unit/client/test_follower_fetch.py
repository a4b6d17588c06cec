"""A follower's hand-written fetch: it encodes and decodes as the generic code does."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.apis.data.fetch_response import FetchPartitionData as Answered
from penstock.apis.data.fetch_response import encode_fetch_response
from penstock.apis.fetch_sessions import RequestedPartition
from penstock.client.data_calls import (
    FetchedPartition,
    FetchFrom,
    FetchOptions,
    fetch_call,
    read_fetched,
)
from penstock.client.follower_fetch import VERSIONS, encode_follower_fetch, read_follower_fetched
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.encoder import encode_parts
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.messages import decode_response
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

IDS = {name: TopicId(UUID(int=number)) for number, name in enumerate(("a", "bb", "c-c"), 1)}
NAMES = {number.bytes: name for name, number in IDS.items()}

int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
partitions = st.builds(TopicPartition, st.sampled_from(sorted(IDS)), st.integers(0, 200))
wanted = st.builds(
    FetchFrom,
    partitions,
    int64.map(Offset),
    int32,
    int32.map(LeaderEpoch),
    int32.map(LeaderEpoch),
    int64.map(Offset),
)
options = st.builds(
    FetchOptions,
    max_wait_ms=st.integers(0, 30_000),
    min_bytes=int32,
    max_bytes=int32,
    replica_id=st.integers(0, 5000).map(BrokerId),
    rack=st.text(max_size=200),
    broker_epoch=int64,
)


@pytest.mark.parametrize("version", VERSIONS)
@given(wanted=st.lists(wanted, max_size=300), options=options)
@settings(max_examples=30, deadline=None)
def test_a_request_has_the_bytes_of_the_generic_encoder(
    version: int, wanted: list[FetchFrom], options: FetchOptions
) -> None:
    general = b"".join(map(bytes, encode_parts(fetch_call(wanted, options, IDS).compose(version))))
    assert encode_follower_fetch(wanted, options, IDS) == general


def ask(topic: TopicId, number: int) -> RequestedPartition:
    return RequestedPartition(
        topic, number, offset=0, max_bytes=0, leader_epoch=-1, last_fetched_epoch=-1
    )


@st.composite
def answers(draw: st.DrawFn) -> Answered:
    topic = draw(st.sampled_from([*IDS.values(), TopicId(UUID(int=99))]))
    request = ask(topic, draw(st.integers(0, 200)))
    marks = Offset(draw(int64)), Offset(draw(int64)), Offset(draw(int64))
    diverging = draw(
        st.none() | st.builds(OffsetAndEpoch, int32.map(LeaderEpoch), int64.map(Offset))
    )
    code = draw(st.sampled_from(list(ErrorCode)))
    return Answered(request, code, *marks, diverging=diverging)


def encode(version: int, some: list[Answered]) -> bytes:
    parts = encode_fetch_response(
        version, error=ErrorCode.NONE, session_id=0, partitions=sorted(some, key=_topic)
    )
    return b"".join(map(bytes, parts))


def _topic(fetched: Answered) -> str:
    return str(fetched.requested.topic)


@pytest.mark.parametrize("version", VERSIONS)
@given(some=st.lists(answers(), max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_response_is_read_as_by_the_generic_decoder(version: int, some: list[Answered]) -> None:
    body = encode(version, some)
    general = decode_response(ApiKey.FETCH, version, memoryview(body))
    expected = read_fetched(general, {number: name for name, number in IDS.items()})
    assert read_follower_fetched(NAMES, version, memoryview(body)) == expected


def test_records_are_views_of_the_response() -> None:
    body = _with_records(b"some batches")
    code, (only,) = read_follower_fetched(NAMES, 16, memoryview(body))
    assert code is ErrorCode.NONE
    assert isinstance(only, FetchedPartition)
    assert bytes(only.batches) == b"some batches"
    assert only.batches.obj is body


def _with_records(records: bytes) -> bytes:
    """Put records into an empty response, whose compact length is 1 for no records."""
    request = ask(IDS["a"], 3)
    empty = encode(16, [Answered(request, ErrorCode.NONE, Offset(5), Offset(5), Offset(0))])
    tail = b"\x01\x00\x00\x00"  # no records; no tagged fields of partition, topic and response
    assert empty.endswith(tail)
    return empty[: -len(tail)] + bytes((len(records) + 1,)) + records + b"\x00\x00\x00"


def test_a_truncated_response_is_malformed() -> None:
    body = _with_records(b"some batches")
    for length in range(len(body)):
        with pytest.raises(MalformedMessage):
            read_follower_fetched(NAMES, 16, memoryview(body[:length]))
