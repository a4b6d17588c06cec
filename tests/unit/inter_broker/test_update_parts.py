"""A large UpdateMetadata is split into parts that stay within the limits of any request."""

from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from tests.unit.inter_broker.test_controller_messages import EXAMPLES, controller_requests

from penstock.inter_broker import update_parts
from penstock.inter_broker.apis.controller_request import API
from penstock.inter_broker.messages.controller_request import (
    decode_controller_request,
    encode_controller_request,
)
from penstock.inter_broker.update_parts import UpdateParts, split_request
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    PartitionState,
    RequestPart,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.request_budget import MAX_ELEMENTS, RequestBudget

THREE = (BrokerId(1), BrokerId(2), BrokerId(3))
MAX_BYTES = 4 << 20  # penstock.request.max.bytes


def make_request(
    *, topics: int = 0, partitions: int = 1, failed: int = 0, epoch: int = 7, number: int = 1
) -> ControllerRequest:
    state = PartitionState(BrokerId(1), LeaderEpoch(0), THREE, THREE)
    update = UpdateMetadataRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(epoch),
        is_full=True,
        brokers=(),
        topics=tuple(
            TopicState(
                name=f"topic-{index}",
                topic_id=TopicId(UUID(int=index + 1)),
                partitions=(state,) * partitions,
            )
            for index in range(topics)
        ),
        failed={TopicPartition("t" * 249, number): frozenset(THREE) for number in range(failed)},
    )
    return ControllerRequest(BrokerEpoch(5), update, number)


def make_stop(partitions: int) -> ControllerRequest:
    stop = StopReplicaRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(7),
        broker_epoch=BrokerEpoch(5),
        partitions=tuple(TopicPartition("orders", number) for number in range(partitions)),
        delete=True,
    )
    return ControllerRequest(BrokerEpoch(5), stop, 1)


def join(parts: list[ControllerRequest]) -> ControllerRequest:
    received = UpdateParts()
    joined = [received.join(part) for part in parts]
    assert joined[:-1] == [None] * (len(parts) - 1)
    assert joined[-1] is not None
    return joined[-1]


@pytest.mark.parametrize(
    "request_",
    [
        make_request(topics=10_000),
        make_request(topics=1, partitions=10_000),  # one topic, which is split, too
        make_request(topics=3, partitions=3_000, failed=5_000),
        make_stop(40_000),  # of a deleted topic
    ],
)
def test_parts_stay_within_the_limits_of_any_request(request_: ControllerRequest) -> None:
    parts = list(split_request(request_))
    assert len(parts) > 1
    assert not API.max_elements
    assert not API.max_frame_bytes
    received = []
    for part in parts:
        encoded = encode_controller_request(part)
        assert len(encoded) < MAX_BYTES / 2
        received.append(decode_controller_request(encoded, RequestBudget(MAX_ELEMENTS // 2)))
    assert received == parts
    assert join(received) == request_


@given(request=controller_requests())
@settings(max_examples=EXAMPLES, deadline=None)
def test_joined_parts_are_the_request_that_was_split(request: ControllerRequest) -> None:
    names = [topic.name for topic in getattr(request.body, "topics", ())]
    assume(len(set(names)) == len(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update_parts, "PART_ELEMENTS", 8)
        assert join(list(split_request(request))) == request


def test_a_small_update_is_not_split() -> None:
    request = make_request(topics=100)
    assert list(split_request(request)) == [request]


def test_a_part_without_those_before_makes_the_sender_begin_again() -> None:
    first, second, *_ = split_request(make_request(topics=10_000))
    other, *_ = split_request(make_request(topics=10_000, number=2))
    received = UpdateParts()
    for parts in ([second], [first, first, second, second], [first, other, second]):
        for part in parts[:-1]:
            assert received.join(part) is None
        with pytest.raises(Refusal) as refused:
            received.join(parts[-1])
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_replaced_controller_cannot_interrupt_its_successor() -> None:
    parts = list(split_request(make_request(topics=10_000, epoch=8)))
    stale, *_ = split_request(make_request(topics=10_000, epoch=7))
    received = UpdateParts()
    received.join(parts[0])
    with pytest.raises(Refusal) as refused:
        received.join(stale)
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert received.join(parts[1]) is None


def test_parts_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_parts, "MAX_ELEMENTS", 50_000)
    first, second, *_ = split_request(make_request(topics=10_000))
    received = UpdateParts()
    received.join(first)
    received.join(second)
    with pytest.raises(Refusal, match="at most 50000 elements"):
        received.join(second._replace(part=RequestPart(2, is_last=False)))
