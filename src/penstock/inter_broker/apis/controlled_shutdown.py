"""ControlledShutdown (private key 31002), version 0: a broker is about to stop.

The controller moves its leaderships; the response lists the partitions that no other replica can
lead.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import respond_refusal, respond_unsupported
from penstock.inter_broker.messages.controlled_shutdown import (
    CONTROLLED_SHUTDOWN_VERSIONS,
    ControlledShutdownRequest,
    decode_controlled_shutdown,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse, encode_private_response
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> bytes:
    message: ControlledShutdownRequest = request.message
    try:
        membership = check_broker(request, services).membership
        remaining = await membership.controlled_shutdown(
            message.broker, message.broker_epoch, timeout_ms=message.timeout_ms
        )
    except Refusal as refusal:
        return respond_refusal(refusal, CONTROLLED_SHUTDOWN_VERSIONS)
    first, last = CONTROLLED_SHUTDOWN_VERSIONS[0], CONTROLLED_SHUTDOWN_VERSIONS[-1]
    return encode_private_response(PrivateResponse(ErrorCode.NONE, None, first, last, remaining))


def _read(body: memoryview, version: int, budget: RequestBudget) -> ControlledShutdownRequest:
    return decode_controlled_shutdown(body, budget)


API = Api(
    key=PrivateKey.CONTROLLED_SHUTDOWN,
    versions=CONTROLLED_SHUTDOWN_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(CONTROLLED_SHUTDOWN_VERSIONS),
)
