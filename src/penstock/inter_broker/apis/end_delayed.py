"""EndDelayed (private key 31011), version 0: a client cancels a delayed message, or wants it now.

Served on every listener, by any broker, to whoever may write to the topic. The payload is the
answer: cancelled, delivered or unknown.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.private_responses import (
    respond_payload,
    respond_refusal,
    respond_unsupported,
)
from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.values import DelayKey
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.end_delayed import (
    END_DELAYED_VERSIONS,
    EndDelayedRequest,
    decode_end_delayed,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_TIMEOUT_MS = 60_000


def answer(request: Request, services: "Services") -> bytes | Awaitable[Any]:
    message: EndDelayedRequest = request.message
    try:
        topic = _get_topic(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, END_DELAYED_VERSIONS)
    request.in_flight.let_next_start()
    return _end(DelayKey(topic.topic_id, message.delay_id), message, services)


def _get_topic(request: Request, services: "Services") -> TopicState:
    name = request.message.topic
    if not allows_topic(request, services, AclOperation.WRITE, name):
        raise Refusal(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs WRITE on topic {name[:249]!r}",
        )
    topic = services.metadata.find_topic(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:249]!r} does not exist")
    return topic


async def _end(delay_key: DelayKey, message: EndDelayedRequest, services: "Services") -> Any:
    timeout_ms = min(max(message.timeout_ms, 0), MAX_TIMEOUT_MS)
    reply: CancelReply | Failed
    if message.deliver_now:
        reply = await services.deferred.deliver_now(delay_key, timeout_ms=timeout_ms)
    else:
        replies = await services.deferred.cancel([delay_key], timeout_ms=timeout_ms)
        reply = replies if isinstance(replies, Failed) else replies[delay_key]
    if isinstance(reply, Failed):
        return respond_refusal(Refusal(reply.code), END_DELAYED_VERSIONS)
    return respond_payload([reply.value.encode()], END_DELAYED_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> EndDelayedRequest:
    return decode_end_delayed(body, budget)


API = Api(
    key=PrivateKey.END_DELAYED,
    versions=END_DELAYED_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(END_DELAYED_VERSIONS),
)
