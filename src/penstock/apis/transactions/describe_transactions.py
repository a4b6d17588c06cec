"""DescribeTransactions (key 65), version 0: the state of transactional ids of this coordinator.

Partitions of topics that the caller may not describe are omitted.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.groups.per_group import for_each_group
from penstock.apis.response_shapes import Shape, response_shape
from penstock.coordinators.transaction.requests import DescribedTransaction
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import time_of
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.DESCRIBE_TRANSACTIONS


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)

    async def describe(transactional_id: str) -> Any:
        described = _describe(request, services, transactional_id)
        return _build(request, services, shape["transaction_states"], described)

    states = await for_each_group(request.message.transactional_ids, describe)
    return shape(throttle_time=timedelta(), transaction_states=tuple(states))


def _describe(
    request: Request, services: "Services", transactional_id: str
) -> DescribedTransaction:
    if allows_transaction(request, services, AclOperation.DESCRIBE, transactional_id):
        return services.transactions.describe(transactional_id)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return DescribedTransaction(transactional_id=transactional_id, code=denied)


def _build(
    request: Request, services: "Services", shape: Shape, described: DescribedTransaction
) -> Any:
    return shape(
        error_code=described.code,
        transactional_id=described.transactional_id,
        transaction_state=described.state,
        transaction_timeout=timedelta(milliseconds=described.timeout_ms),
        transaction_start_time=time_of(described.started_ms),
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        topics=_build_topics(request, services, shape["topics"], described),
    )


def _build_topics(
    request: Request, services: "Services", shape: Shape, described: DescribedTransaction
) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        shape(topic=topic, partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
        if allows_topic(request, services, AclOperation.DESCRIBE, topic, shows=True)
    )


API = Api(key=KEY, versions=range(1), answer=answer)
