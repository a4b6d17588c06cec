"""AlterPartition (key 56), versions 2-3: a leader changes the ISR (KIP-497, KIP-903).

For brokers only, served by the controller. A refused partition is returned with its stored state,
where Kafka has zeros, so that a leader with a stale state can go on from there.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult, IsrMember
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.apis.services import Services

ALTER_TIMEOUT_MS = 15_000  # the request has none
_FIRST_WITH_EPOCHS = 3
_UNKNOWN = BrokerEpoch(-1)
_NO_ID = UUID(int=0)


async def answer(request: Request, services: "Services") -> Any:
    message = request.message
    changes = list(_changes(request))
    try:
        results = await check_broker(request, services).membership.alter_partition(
            changes,
            broker=BrokerId(message.broker_id),
            broker_epoch=BrokerEpoch(message.broker_epoch),
            timeout_ms=ALTER_TIMEOUT_MS,
        )
    except Refusal as refusal:
        return _response(request, refusal.code, [])
    return _response(request, ErrorCode.NONE, results)


API = Api(key=ApiKey.ALTER_PARTITION, versions=range(2, 4), answer=answer)


def _changes(request: Request) -> Iterator[AlterPartitionProposal]:
    for topic in request.message.topics:
        for partition in topic.partitions:
            yield AlterPartitionProposal(
                topic_id=TopicId(topic.topic_id or _NO_ID),
                partition=partition.partition_index,
                leader_epoch=LeaderEpoch(partition.leader_epoch),
                partition_epoch=partition.partition_epoch,
                in_sync=_members(partition, request.version),
            )


def _members(partition: Any, version: int) -> tuple[IsrMember, ...]:
    if version < _FIRST_WITH_EPOCHS:
        return tuple(IsrMember(BrokerId(broker), _UNKNOWN) for broker in partition.new_isr)
    return tuple(
        IsrMember(BrokerId(member.broker_id), BrokerEpoch(member.broker_epoch))
        for member in partition.new_isr_with_epochs
    )


def _response(request: Request, code: ErrorCode, results: list[AlterPartitionResult]) -> Any:
    shape = response_shape(request.key, request.version)
    left = iter(results)
    topics = request.message.topics if results else ()
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        topics=tuple(
            shape["topics"](
                topic_id=topic.topic_id,
                partitions=tuple(
                    _partition(shape["topics"]["partitions"], partition.partition_index, next(left))
                    for partition in topic.partitions
                ),
            )
            for topic in topics
        ),
    )


def _partition(shape: Shape, number: int, result: AlterPartitionResult) -> Any:
    state = result.state
    return shape(
        partition_index=number,
        error_code=result.code,
        leader_id=-1 if state is None else state.leader,
        leader_epoch=-1 if state is None else state.leader_epoch,
        isr=() if state is None else state.in_sync,
        partition_epoch=-1 if state is None else state.partition_epoch,
    )
