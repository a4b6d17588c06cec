"""Private requests and their response, to bytes and back; other bytes are rejected."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.inter_broker.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    decode_controlled_shutdown,
    encode_controlled_shutdown,
)
from penstock.inter_broker.messages.controller_request import (
    decode_controller_request,
    encode_controller_request,
)
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.private_response import (
    PrivateResponse,
    decode_private_response,
    encode_private_response,
)

EXAMPLES = scaled(test=100, verify=2000, release=20_000)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=20)
brokers = st.lists(int32.map(BrokerId), max_size=4).map(tuple)
configs = st.dictionaries(text, text, max_size=3)
topic_ids = st.uuids().map(TopicId)
partitions = st.builds(TopicPartition, text, int32)
states = st.builds(
    PartitionState,
    leader=int32.map(BrokerId),
    leader_epoch=int32.map(LeaderEpoch),
    replicas=brokers,
    in_sync=brokers,
    partition_epoch=int32,
    controller_epoch=int32.map(ControllerEpoch),
    adding=brokers,
    removing=brokers,
)
nodes = st.builds(
    BrokerNode,
    id=int32.map(BrokerId),
    epoch=int64.map(BrokerEpoch),
    endpoints=st.lists(st.builds(Endpoint, text, text, text, int32), max_size=3).map(tuple),
    rack=st.none() | text,
)
topics = st.builds(
    TopicState,
    name=text,
    topic_id=topic_ids,
    partitions=st.lists(states, max_size=3).map(tuple),
    configs=configs,
)


def tuples(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=3).map(tuple)


@st.composite
def controller_requests(draw: st.DrawFn) -> ControllerRequest:
    epoch = BrokerEpoch(draw(int64))
    head = {
        "controller_id": st.builds(BrokerId, int32),
        "controller_epoch": st.builds(ControllerEpoch, int32),
    }
    addressed = {**head, "broker_epoch": st.just(epoch)}
    body: ControllerRequestBody = draw(
        st.one_of(
            st.builds(
                LeaderAndIsrRequest,
                **addressed,
                partitions=tuples(
                    st.builds(LeaderAndIsrPartition, partitions, topic_ids, states, st.booleans())
                ),
            ),
            st.builds(
                StopReplicaRequest, **addressed, partitions=tuples(partitions), delete=st.booleans()
            ),
            st.builds(
                UpdateMetadataRequest,
                **head,
                is_full=st.booleans(),
                brokers=st.none() | tuples(nodes),
                topics=tuples(topics),
                deleted_topics=tuples(text),
                broker_configs=st.none() | st.dictionaries(text, configs, max_size=2),
                failed=st.none() | st.dictionaries(partitions, brokers.map(frozenset), max_size=3),
                group_configs=st.none() | st.dictionaries(text, configs, max_size=3),
            ),
        )
    )
    return ControllerRequest(epoch, body, draw(int64))


@given(controller_requests())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_controller_request_survives_a_round_trip(sent: ControllerRequest) -> None:
    assert decode_controller_request(encode_controller_request(sent)) == sent


@given(controller_requests(), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_damaged_controller_request_is_malformed_or_another_request(
    sent: ControllerRequest, data: st.DataObject
) -> None:
    encoded = bytearray(encode_controller_request(sent))
    position = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        del encoded[position:]
    else:
        encoded[position] ^= data.draw(st.integers(1, 255))
    with suppress(MalformedMessage):
        assert isinstance(decode_controller_request(encoded), ControllerRequest)


def test_a_truncated_controller_request_is_malformed() -> None:
    body = StopReplicaRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(2),
        broker_epoch=BrokerEpoch(3),
        partitions=(TopicPartition("t", 0),),
        delete=True,
    )
    encoded = encode_controller_request(ControllerRequest(BrokerEpoch(3), body, 4))
    for length in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode_controller_request(encoded[:length])
    with pytest.raises(MalformedMessage):
        decode_controller_request(encoded + b"\0")


def test_the_bytes_of_a_controller_request_are_those_of_the_document() -> None:
    """Encoded by hand from docs/inter_broker.md: changing them needs a new version."""
    body = StopReplicaRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(2),
        broker_epoch=BrokerEpoch(3),
        partitions=(TopicPartition("ab", 5),),
        delete=True,
    )
    expected = (
        bytes.fromhex("0000000000000003")  # broker epoch
        + bytes.fromhex("00000001 00000002")  # controller id and epoch
        + bytes.fromhex("0000000000000004")  # the request's number
        + b"\x01"  # StopReplica
        + b"\x02"  # one partition
        + b"\x03ab"
        + bytes.fromhex("00000005")
        + b"\x00"  # no tagged fields
        + b"\x01"  # delete
        + b"\x00"
    )
    assert encode_controller_request(ControllerRequest(BrokerEpoch(3), body, 4)) == expected


def test_an_unknown_kind_of_controller_request_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="kind 9"):
        decode_controller_request(bytes(24) + b"\x09" + b"\x00")


def test_unknown_tags_are_skipped() -> None:
    """A later release may add fields."""
    encoded = encode_controlled_shutdown(ControlledShutdownRequest(BrokerId(1), BrokerEpoch(2), 3))
    assert encoded[-1:] == b"\0"
    assert decode_controlled_shutdown(
        encoded[:-1] + b"\x01\x07\x02hi"
    ) == ControlledShutdownRequest(BrokerId(1), BrokerEpoch(2), 3)


@given(st.builds(ControlledShutdownRequest, int32.map(BrokerId), int64.map(BrokerEpoch), int32))
@settings(max_examples=30)
def test_controlled_shutdown_survives_a_round_trip(request_: ControlledShutdownRequest) -> None:
    assert decode_controlled_shutdown(encode_controlled_shutdown(request_)) == request_


@pytest.mark.parametrize("message", [None, "", "why"])
def test_a_private_response_survives_a_round_trip(message: str | None) -> None:
    for code in (ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR):
        response = PrivateResponse(code, message, 0, 4, (TopicPartition("t", 3),))
        assert decode_private_response(encode_private_response(response)) == response


def test_failed_replicas_are_a_tag_that_an_older_broker_skips() -> None:
    update = UpdateMetadataRequest(
        controller_id=BrokerId(1), controller_epoch=ControllerEpoch(2), is_full=False
    )
    tp, offline = TopicPartition("ab", 5), frozenset((BrokerId(4), BrokerId(3)))
    without = encode_controller_request(ControllerRequest(BrokerEpoch(0), update, 1))
    tagged = encode_controller_request(
        ControllerRequest(BrokerEpoch(0), replace(update, failed={tp: offline}), 1)
    )
    expected = (
        b"\x01\x00"  # one tagged field, tag 0
        b"\x12"  # its length
        b"\x02"  # one partition
        b"\x03ab"
        + bytes.fromhex("00000005")
        + b"\x03"  # two brokers
        + bytes.fromhex("00000003 00000004")
        + b"\x00"  # no tagged fields
    )
    assert tagged == without[:-1] + expected


def test_topic_ids_are_written_as_16_bytes() -> None:
    topic = TopicState(name="t", topic_id=TopicId(UUID(int=5)), partitions=())
    update = UpdateMetadataRequest(
        controller_id=BrokerId(0),
        controller_epoch=ControllerEpoch(0),
        is_full=False,
        topics=(topic,),
    )
    encoded = encode_controller_request(ControllerRequest(BrokerEpoch(0), update, 1))
    assert UUID(int=5).bytes in encoded
