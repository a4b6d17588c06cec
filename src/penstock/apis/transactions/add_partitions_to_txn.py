"""AddPartitionsToTxn (key 24), versions 0-5: adds partitions to a producer's transaction.

Versions 0-3 are for producers, with one transaction each; 2 added PRODUCER_FENCED. Versions 4-5 are
for brokers, with several at once, which verify that partitions belong to a transaction
(`verify_only`) or add them for clients with transactions v2 (KIP-890). If one partition cannot be
added, none of its transaction is.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_topic, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.response_shapes import Shape, response_shape
from penstock.apis.transactions.producer_fenced import code_for
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
FIRST_WITH_FENCED = 2
FIRST_FOR_BROKERS = 4

_Codes = Mapping[TopicPartition, ErrorCode]


class _Entry(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False

    def all_with(self, code: ErrorCode) -> _Codes:
        return dict.fromkeys(self.partitions, code)


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    is_for_brokers = request.version >= FIRST_FOR_BROKERS
    return (_answer_broker if is_for_brokers else _answer_producer)(request, services)


# -- producers -----------------------------------------------------------------------------


async def _answer_producer(request: Request, services: "Services") -> Any:
    message = request.message
    entry = _Entry(
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
        _partitions(message.v3_and_below_topics),
    )
    if allows_transaction(request, services, AclOperation.WRITE, entry.transactional_id):
        codes = _refuse_topics(request, services, entry) or await _add(request, services, entry)
    else:
        codes = entry.all_with(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        results_by_topic_v3_and_below=_topics(shape["results_by_topic_v3_and_below"], codes),
    )


def _refuse_topics(request: Request, services: "Services", entry: _Entry) -> _Codes:
    """The codes of refused partitions, and OPERATION_NOT_ATTEMPTED for the rest; empty if none."""
    refused = {
        tp: code
        for tp in entry.partitions
        if (code := _refuse_topic(request, services, tp)) is not ErrorCode.NONE
    }
    return {**entry.all_with(ErrorCode.OPERATION_NOT_ATTEMPTED), **refused} if refused else {}


def _refuse_topic(request: Request, services: "Services", tp: TopicPartition) -> ErrorCode:
    is_internal = tp.topic in INTERNAL_TOPICS
    if is_internal or not allows_topic(request, services, AclOperation.WRITE, tp.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = services.metadata.has_partition(tp)
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- brokers -------------------------------------------------------------------------------


async def _answer_broker(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return shape(
            throttle_time=timedelta(),
            error_code=refusal.code,
            results_by_transaction=(),
        )
    async with asyncio.TaskGroup() as tasks:
        results = [
            tasks.create_task(
                _answer_transaction(request, services, shape["results_by_transaction"], transaction)
            )
            for transaction in request.message.transactions
        ]
    return shape(
        throttle_time=timedelta(),
        error_code=ErrorCode.NONE,
        results_by_transaction=tuple(task.result() for task in results),
    )


async def _answer_transaction(
    request: Request, services: "Services", shape: Shape, transaction: Any
) -> Any:
    entry = _Entry(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        _partitions(transaction.topics),
        transaction.verify_only,
    )
    codes = await (
        _verify(services, entry) if entry.verify_only else _add(request, services, entry)
    )
    return shape(
        transactional_id=entry.transactional_id,
        topic_results=_topics(shape["topic_results"], codes),
    )


# -- both ----------------------------------------------------------------------------------


async def _add(request: Request, services: "Services", entry: _Entry) -> _Codes:
    is_from_producer = request.version < FIRST_FOR_BROKERS  # a broker's connection serves many
    code = await services.transactions.add_partitions(
        entry.transactional_id,
        entry.producer_id,
        entry.producer_epoch,
        entry.partitions,
        version=request.version,
        connection=request.in_flight.connection if is_from_producer else None,
    )
    return entry.all_with(code_for(request, code, FIRST_WITH_FENCED))


async def _verify(services: "Services", entry: _Entry) -> _Codes:
    return await services.transactions.verify_partitions(
        entry.transactional_id, entry.producer_id, entry.producer_epoch, entry.partitions
    )


def _partitions(topics: Any) -> tuple[TopicPartition, ...]:
    partitions = [
        TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions
    ]
    return tuple(dict.fromkeys(partitions))


def _topics(shape: Shape, codes: _Codes) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), code in codes.items():
        entry = shape["results_by_partition"](partition_index=partition, partition_error_code=code)
        by_topic.setdefault(topic, []).append(entry)
    return tuple(
        shape(name=topic, results_by_partition=tuple(entries))
        for topic, entries in by_topic.items()
    )


API = Api(key=KEY, versions=range(6), answer=answer)
