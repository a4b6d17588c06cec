"""AppendDeferred (private key 31010), version 0: messages that have waited, to a target's leader.

The batch may be larger than the topic's max.message.bytes: its messages came in smaller ones,
perhaps compressed, and it cannot be divided any more. The payload is its base offset.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_payload,
    respond_refusal,
    respond_unsupported,
)
from penstock.inter_broker.messages.deferred import (
    DEFERRED_VERSIONS,
    AppendDeferredRequest,
    decode_append_deferred,
    encode_base_offset,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_FRAME_BYTES = 2**31 - 1  # a message of any size: socket.request.max.bytes applies


def answer(request: Request, services: "Services") -> bytes | Awaitable[Any]:
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, DEFERRED_VERSIONS)
    request.in_flight.let_next_start()  # for other targets
    return _append(request.message, services)


async def _append(message: AppendDeferredRequest, services: "Services") -> Any:
    reply = await services.deferred.append_here(
        message.target, bytearray(message.batch), timeout_ms=message.timeout_ms
    )
    if reply.code is not ErrorCode.NONE:
        return respond_refusal(Refusal(reply.code), DEFERRED_VERSIONS)
    return respond_payload([encode_base_offset(reply.base_offset)], DEFERRED_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> AppendDeferredRequest:
    return decode_append_deferred(body, budget)


API = Api(
    key=PrivateKey.APPEND_DEFERRED,
    versions=DEFERRED_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(DEFERRED_VERSIONS),
    max_frame_bytes=MAX_FRAME_BYTES,
)
