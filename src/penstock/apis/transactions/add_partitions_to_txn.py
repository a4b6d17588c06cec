"""AddPartitionsToTxn (key 24), versions 0-5: partitions become part of a producer's transaction.

Versions 0-3 are for producers, with one transaction each: 2 added the code of a producer that
another one has replaced. Versions 4-5 are for brokers, with several at once, which only ask whether
partitions belong to them (`verify_only`) or add them for clients with transactions v2 (KIP-890).
A partition that cannot be added keeps the others of its transaction from it.
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


class _Asked(NamedTuple):
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
    asked = _Asked(
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
        _partitions(message.v3_and_below_topics),
    )
    if allows_transaction(request, services, AclOperation.WRITE, asked.transactional_id):
        codes = _refuse_topics(request, services, asked) or await _add(request, services, asked)
    else:
        codes = asked.all_with(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        results_by_topic_v3_and_below=_topics(shape["results_by_topic_v3_and_below"], codes),
    )


def _refuse_topics(request: Request, services: "Services", asked: _Asked) -> _Codes:
    """Why some may not be added, and that the others were not; empty if all may be."""
    refused = {
        each: code
        for each in asked.partitions
        if (code := _refuse_topic(request, services, each)) is not ErrorCode.NONE
    }
    return {**asked.all_with(ErrorCode.OPERATION_NOT_ATTEMPTED), **refused} if refused else {}


def _refuse_topic(request: Request, services: "Services", name: TopicPartition) -> ErrorCode:
    is_producers = name.topic not in INTERNAL_TOPICS
    if not is_producers or not allows_topic(request, services, AclOperation.WRITE, name.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_there = services.metadata.has_partition(name)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
        answers = [
            tasks.create_task(
                _answer_transaction(request, services, shape["results_by_transaction"], each)
            )
            for each in request.message.transactions
        ]
    return shape(
        throttle_time=timedelta(),
        error_code=ErrorCode.NONE,
        results_by_transaction=tuple(each.result() for each in answers),
    )


async def _answer_transaction(
    request: Request, services: "Services", shape: Shape, transaction: Any
) -> Any:
    asked = _Asked(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        _partitions(transaction.topics),
        transaction.verify_only,
    )
    codes = await (
        _verify(services, asked) if asked.verify_only else _add(request, services, asked)
    )
    return shape(
        transactional_id=asked.transactional_id,
        topic_results=_topics(shape["topic_results"], codes),
    )


# -- both ----------------------------------------------------------------------------------


async def _add(request: Request, services: "Services", asked: _Asked) -> _Codes:
    is_producers = request.version < FIRST_FOR_BROKERS  # not a broker's, on behalf of many
    code = await services.transactions.add_partitions(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        asked.partitions,
        version=request.version,
        connection=request.in_flight.connection if is_producers else None,
    )
    return asked.all_with(code_for(request, code, FIRST_WITH_FENCED))


async def _verify(services: "Services", asked: _Asked) -> _Codes:
    return await services.transactions.verify_partitions(
        asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.partitions
    )


def _partitions(topics: Any) -> tuple[TopicPartition, ...]:
    named = [TopicPartition(topic.name, each) for topic in topics for each in topic.partitions]
    return tuple(dict.fromkeys(named))


def _topics(shape: Shape, codes: _Codes) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for name, code in codes.items():
        entry = shape["results_by_partition"](
            partition_index=name.partition, partition_error_code=code
        )
        by_topic.setdefault(name.topic, []).append(entry)
    return tuple(
        shape(name=topic, results_by_partition=tuple(entries))
        for topic, entries in by_topic.items()
    )


API = Api(key=KEY, versions=range(6), answer=answer)
