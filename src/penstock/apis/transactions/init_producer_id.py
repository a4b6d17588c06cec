"""InitProducerId (key 22), versions 0-6: allocates a producer's id, for idempotence and
transactions.

Version 3 added the id and epoch that the producer had before (KIP-360), 4 PRODUCER_FENCED, 6
two-phase commit and keeping the transaction that a previous incarnation prepared (KIP-939). Without
a transactional id every producer gets a new id, which fences nobody; with one, the transaction
coordinator returns its producer id with an epoch that fences earlier incarnations.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_any_topic, allows_cluster, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.apis.transactions.producer_fenced import code_for
from penstock.coordinators.transaction.requests import NO_EPOCH, InitProducerId, InitProducerIdReply
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_PRODUCER_ID
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.INIT_PRODUCER_ID
FIRST_WITH_FENCED = 4
FIRST_EPOCH = 0


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    is_transactional = request.message.transactional_id is not None
    find_refusal = _refuse_transactional if is_transactional else _refuse_idempotent
    refused = find_refusal(request, services) or _check_id_and_epoch(request)
    if refused is not None:
        return _build(request, InitProducerIdReply(code=refused))
    return (_init_transactional if is_transactional else _allocate_id)(request, services)


def _refuse_transactional(request: Request, services: "Services") -> ErrorCode | None:
    transactional_id = request.message.transactional_id
    operations = [AclOperation.WRITE]
    if _field(request, "enable2_pc", False):
        operations.append(AclOperation.TWO_PHASE_COMMIT)
    if all(
        allows_transaction(request, services, operation, transactional_id)
        for operation in operations
    ):
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _refuse_idempotent(request: Request, services: "Services") -> ErrorCode | None:
    if not _may_be_idempotent(request, services):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    has_phases = _field(request, "enable2_pc", False) or _field(request, "keep_prepared_txn", False)
    return ErrorCode.INVALID_REQUEST if has_phases else None


def _check_id_and_epoch(request: Request) -> ErrorCode | None:
    has_id = _field(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = _field(request, "producer_epoch", NO_EPOCH) != NO_EPOCH
    return ErrorCode.INVALID_REQUEST if has_id != has_epoch else None


def _may_be_idempotent(request: Request, services: "Services") -> bool:
    """Whether the principal may write to any topic, which allows idempotent writes (KIP-679)."""
    return allows_any_topic(request, services, AclOperation.WRITE) or allows_cluster(
        request, services, AclOperation.IDEMPOTENT_WRITE
    )


async def _allocate_id(request: Request, services: "Services") -> Any:
    try:
        producer_id = await services.producer_ids.next_producer_id()
    except Refusal as refusal:
        return _build(request, InitProducerIdReply(code=refusal.code))
    reply = InitProducerIdReply(
        code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH
    )
    return _build(request, reply)


async def _init_transactional(request: Request, services: "Services") -> Any:
    message = request.message
    reply = await services.transactions.init_producer_id(
        InitProducerId(
            transactional_id=message.transactional_id,
            timeout_ms=ms_of_delta(message.transaction_timeout),
            producer_id=_field(request, "producer_id", NO_PRODUCER_ID),
            producer_epoch=_field(request, "producer_epoch", NO_EPOCH),
            two_phase=_field(request, "enable2_pc", False),
            keep_prepared=_field(request, "keep_prepared_txn", False),
        )
    )
    return _build(request, reply)


def _field(request: Request, name: str, default: Any) -> Any:
    """The field, or the default in versions that lack it."""
    return getattr(request.message, name, default)


def _build(request: Request, reply: InitProducerIdReply) -> Any:
    return response_shape(KEY, request.version)(
        throttle_time=timedelta(),
        error_code=code_for(request, reply.code, FIRST_WITH_FENCED),
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
        ongoing_txn_producer_id=reply.ongoing_producer_id,
        ongoing_txn_producer_epoch=reply.ongoing_producer_epoch,
    )


API = Api(key=KEY, versions=range(7), answer=answer)
