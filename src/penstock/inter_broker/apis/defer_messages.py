"""DeferMessages (private key 31008), versions 0-1: messages of a batch, for their shard.

Sent to its leader. Version 1 added messages of transactions. The code is NONE once all of them are
durable.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import respond_refusal, respond_unsupported
from penstock.inter_broker.messages.deferred import (
    DEFER_MESSAGES_VERSIONS,
    DeferMessagesRequest,
    decode_defer_messages,
)
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse, encode_private_response
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_FRAME_BYTES = 2**31 - 1  # a produced batch, decompressed: socket.request.max.bytes applies
MAX_ELEMENTS = 20_000_000  # headers of records, as many as may be produced


def answer(request: Request, services: "Services") -> bytes | Awaitable[bytes]:
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, DEFER_MESSAGES_VERSIONS)
    request.in_flight.let_next_start()  # of another client of the sender
    return _defer(request.message, services)


async def _defer(message: DeferMessagesRequest, services: "Services") -> bytes:
    reply = await services.deferred.defer_here(*message)
    return encode_private_response(
        PrivateResponse(
            reply.code, reply.message, DEFER_MESSAGES_VERSIONS[0], DEFER_MESSAGES_VERSIONS[-1]
        )
    )


def _read(body: memoryview, version: int, budget: RequestBudget) -> DeferMessagesRequest:
    return decode_defer_messages(body, version, budget)


API = Api(
    key=PrivateKey.DEFER_MESSAGES,
    versions=DEFER_MESSAGES_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(DEFER_MESSAGES_VERSIONS),
    max_frame_bytes=MAX_FRAME_BYTES,
    max_elements=MAX_ELEMENTS,
)
