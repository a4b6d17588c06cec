"""TxnOffsetCommit (key 28), versions 0-5: commits offsets as part of a transaction.

Version 2 added the leader epoch, 3 the member (KIP-447: its generation fences a zombie), 4
TRANSACTION_ABORTABLE, 5 adds the group to the transaction by itself (KIP-890). Before, the
transaction coordinator is asked whether the group was added. Every partition has its own code.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group, allows_topic, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.data.transaction_check import TransactionCheck
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    CommitInTransaction,
    CommitOffsets,
    OffsetCommit,
)
from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.TXN_OFFSET_COMMIT
FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS = 5

Codes = Mapping[TopicPartition, ErrorCode]

# The transaction coordinator cannot be reached, or is busy. These become the one code on which
# every producer retries without looking for another coordinator first.
_TRANSIENT = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    refusal = _find_refusal(request, services)
    if refusal is not ErrorCode.NONE:
        return _build(request, dict.fromkeys(_requested(request), refusal))
    refused = {tp: code for tp in _requested(request) if (code := _refuse(request, services, tp))}
    commits = _read_commits(request, refused)
    if not commits:
        return _build(request, refused)
    return _commit(request, services, commits, refused)


def _find_refusal(request: Request, services: "Services") -> ErrorCode:
    message = request.message
    if not allows_transaction(request, services, AclOperation.WRITE, message.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not allows_group(request, services, AclOperation.READ, message.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if message.producer_id < 0 or message.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE


def _requested(request: Request) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, entry.partition_index)
        for topic in request.message.topics
        for entry in topic.partitions
    ]


def _refuse(request: Request, services: "Services", tp: TopicPartition) -> ErrorCode | None:
    if not allows_topic(request, services, AclOperation.READ, tp.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = services.metadata.has_partition(tp)
    return None if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _read_commits(request: Request, refused: Codes) -> dict[TopicPartition, OffsetCommit]:
    """If a partition occurs twice, the later offset counts."""
    commits: dict[TopicPartition, OffsetCommit] = {}
    for topic in request.message.topics:
        for entry in topic.partitions:
            tp = TopicPartition(topic.name, entry.partition_index)
            if tp not in refused:
                commits[tp] = OffsetCommit(
                    tp=tp,
                    offset=entry.committed_offset,
                    leader_epoch=getattr(entry, "committed_leader_epoch", NO_LEADER_EPOCH),
                    metadata=entry.committed_metadata or "",
                )
    return commits


async def _commit(
    request: Request,
    services: "Services",
    commits: Mapping[TopicPartition, OffsetCommit],
    refused: Codes,
) -> Any:
    message = request.message
    offsets_partition = TopicPartition(
        OFFSETS_TOPIC, services.groups.partition_of(message.group_id)
    )
    check = TransactionCheck(
        services,
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        adds=request.version >= FIRST_THAT_ADDS,
    )
    checked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    check.verify([offsets_partition], partial(_resolve, checked))
    await checked
    committed = await services.groups.commit_in_transaction(
        CommitInTransaction(
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            find_refusal=lambda: _to_client_code(
                check.find_refusal(offsets_partition), request.version
            ),
            commit=CommitOffsets(
                group=message.group_id,
                member=getattr(message, "member_id", UNKNOWN_MEMBER),
                instance=getattr(message, "group_instance_id", None),
                generation=getattr(message, "generation_id", NO_GENERATION),
                offsets=tuple(commits.values()),
            ),
        )
    )
    return _build(request, {**committed, **refused})


def _resolve(checked: "asyncio.Future[None]") -> None:
    if not checked.done():  # done: the client has gone
        checked.set_result(None)


def _to_client_code(code: ErrorCode, version: int) -> ErrorCode:
    if code in _TRANSIENT:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _build(request: Request, codes: Codes) -> Any:
    shape = response_shape(KEY, request.version)
    topic_shape = shape["topics"]
    partition_shape = topic_shape["partitions"]
    topics = tuple(
        topic_shape(
            name=topic.name,
            partitions=tuple(
                partition_shape(
                    partition_index=entry.partition_index,
                    error_code=codes[TopicPartition(topic.name, entry.partition_index)],
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.message.topics
    )
    return shape(throttle_time=timedelta(), topics=topics)


API = Api(key=KEY, versions=range(6), answer=answer)
