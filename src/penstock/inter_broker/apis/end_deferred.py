"""EndDeferred (private key 31009), versions 0-1: cancels messages, or makes one due now.

Sent to the leader of their shard. Version 1 cancels several. The payload is the answer: cancelled,
delivered or unknown, of each.
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
from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.inter_broker.messages.deferred import (
    END_DEFERRED_VERSIONS,
    EndDeferredRequest,
    decode_end_deferred,
    encode_ends,
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
        return respond_refusal(refusal, END_DEFERRED_VERSIONS)
    request.in_flight.let_next_start()
    return _end(request.message, services)


async def _end(message: EndDeferredRequest, services: "Services") -> Any:
    partition, delay_keys, deliver_now = message
    replies: tuple[CancelReply, ...] | Failed
    if deliver_now:
        reply = await services.deferred.deliver_now_here(partition, delay_keys[0])
        replies = reply if isinstance(reply, Failed) else (reply,)
    else:
        replies = await services.deferred.cancel_here(partition, delay_keys)
    if isinstance(replies, Failed):
        return respond_refusal(Refusal(replies.code), END_DEFERRED_VERSIONS)
    return respond_payload([encode_ends(replies)], END_DEFERRED_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> EndDeferredRequest:
    return decode_end_deferred(body, version, budget)


API = Api(
    key=PrivateKey.END_DEFERRED,
    versions=END_DEFERRED_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(END_DEFERRED_VERSIONS),
)
