"""AlterPartition (key 56), versions 2-3: a leader changes who is in sync (KIP-497, KIP-903).

For brokers alone, answered by the controller. A partition that is refused is answered with its
state as it is stored, where Kafka has zeros: a leader that knows an old one can go on from there.
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

ALTER_TIMEOUT_MS = 15_000  # the request brings none
_FIRST_WITH_EPOCHS = 3
_UNKNOWN = BrokerEpoch(-1)
_NO_ID = UUID(int=0)


async def answer(request: Request, services: "Services") -> Any:
    asked = request.message
    changes = list(_changes(request))
    try:
        outcomes = await check_broker(request, services).membership.alter_partition(
            changes,
            broker=BrokerId(asked.broker_id),
            broker_epoch=BrokerEpoch(asked.broker_epoch),
            timeout_ms=ALTER_TIMEOUT_MS,
        )
    except Refusal as refusal:
        return _response(request, refusal.code, [])
    return _response(request, ErrorCode.NONE, outcomes)


API = Api(key=ApiKey.ALTER_PARTITION, versions=range(2, 4), answer=answer)


def _changes(request: Request) -> Iterator[AlterPartitionProposal]:
    for topic in request.message.topics:
        for each in topic.partitions:
            yield AlterPartitionProposal(
                topic_id=TopicId(topic.topic_id or _NO_ID),
                partition=each.partition_index,
                leader_epoch=LeaderEpoch(each.leader_epoch),
                partition_epoch=each.partition_epoch,
                in_sync=_members(each, request.version),
            )


def _members(partition: Any, version: int) -> tuple[IsrMember, ...]:
    if version < _FIRST_WITH_EPOCHS:
        return tuple(IsrMember(BrokerId(each), _UNKNOWN) for each in partition.new_isr)
    return tuple(
        IsrMember(BrokerId(each.broker_id), BrokerEpoch(each.broker_epoch))
        for each in partition.new_isr_with_epochs
    )


def _response(request: Request, code: ErrorCode, outcomes: list[AlterPartitionResult]) -> Any:
    shape = response_shape(request.key, request.version)
    left = iter(outcomes)
    topics = request.message.topics if outcomes else ()
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        topics=tuple(
            shape["topics"](
                topic_id=topic.topic_id,
                partitions=tuple(
                    _partition(shape["topics"]["partitions"], each.partition_index, next(left))
                    for each in topic.partitions
                ),
            )
            for topic in topics
        ),
    )


def _partition(shape: Shape, number: int, outcome: AlterPartitionResult) -> Any:
    state = outcome.state
    return shape(
        partition_index=number,
        error_code=outcome.code,
        leader_id=-1 if state is None else state.leader,
        leader_epoch=-1 if state is None else state.leader_epoch,
        isr=() if state is None else state.in_sync,
        partition_epoch=-1 if state is None else state.partition_epoch,
    )
