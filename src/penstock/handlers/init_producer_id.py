"""InitProducerId (key 22), versions 0-5: a producer id, so that retries leave no duplicates.

Version 3 added the id and epoch that a producer had before (KIP-360): without a transactional id it
gets a new one all the same, which fences nobody. Transactional ids are refused: they belong to a
transaction coordinator, and this broker runs none.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.handlers.access import allows_cluster, allows_topic
from penstock.handlers.api import Api, Request
from penstock.handlers.shapes import response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_PRODUCER_ID
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import wire_error
from penstock.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from penstock.handlers.services import Services

KEY = ApiKey.INIT_PRODUCER_ID
NO_EPOCH = -1
FIRST_EPOCH = 0


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    refused = _find_refusal(request, services)
    if refused is not None:
        return _build(request, refused)
    return _give_new_id(request, services)


def _find_refusal(request: Request, services: "Services") -> ErrorCode | None:
    message = request.message
    if message.transactional_id is not None:
        if not services.authorizer.allows(
            request.caller,
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            message.transactional_id,
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # Not one that clients retry on: it would keep them waiting for what never comes.
        return ErrorCode.INVALID_REQUEST
    if not _may_be_idempotent(request, services):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    has_id = getattr(message, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = getattr(message, "producer_epoch", NO_EPOCH) != NO_EPOCH
    return ErrorCode.INVALID_REQUEST if has_id != has_epoch else None


def _may_be_idempotent(request: Request, services: "Services") -> bool:
    """Who may write to any topic may do so without duplicates (KIP-679)."""
    return allows_cluster(request, services, Operation.IDEMPOTENT_WRITE) or any(
        allows_topic(request, services, Operation.WRITE, topic) for topic in services.cluster.topics
    )


async def _give_new_id(request: Request, services: "Services") -> Any:
    try:
        producer_id = await services.producer_ids.next_producer_id()
    except Refusal as refusal:
        return _build(request, refusal.code)
    return _build(request, ErrorCode.NONE, producer_id, FIRST_EPOCH)


def _build(
    request: Request,
    code: ErrorCode,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
) -> Any:
    return response_shape(KEY, request.version)(
        throttle_time=timedelta(),
        error_code=wire_error(code),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


API = Api(key=KEY, versions=range(6), answer=answer, max_frame_bytes=1 << 20)
