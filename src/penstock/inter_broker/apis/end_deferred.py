"""EndDeferred (private key 31009), version 0: cancels a message, or makes it due now.

Sent to the leader of its shard. The payload is the answer: cancelled, delivered or unknown.
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
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.inter_broker.messages.deferred import (
    DEFERRED_VERSIONS,
    EndDeferredRequest,
    decode_end_deferred,
)
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> bytes | Awaitable[Any]:
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, DEFERRED_VERSIONS)
    request.in_flight.let_next_start()
    return _end(request.message, services)


async def _end(message: EndDeferredRequest, services: "Services") -> Any:
    reply = await services.deferred.end_here(
        message.partition, message.delay_key, deliver_now=message.deliver_now
    )
    if isinstance(reply, Failed):
        return respond_refusal(Refusal(reply.code), DEFERRED_VERSIONS)
    return respond_payload([reply.value.encode()], DEFERRED_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> EndDeferredRequest:
    return decode_end_deferred(body, budget)


API = Api(
    key=PrivateKey.END_DEFERRED,
    versions=DEFERRED_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(DEFERRED_VERSIONS),
)
