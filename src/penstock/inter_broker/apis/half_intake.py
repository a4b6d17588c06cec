"""HalfIntake (private key 31013), version 0: halves or decisions, to the leader of their shard.

Sent by the leader of the partition they were read from. The payload is the offset up to which that
is read; an intake that does not begin there changes nothing.
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
from penstock.coordinators.deferred.half_values import HalfIntake
from penstock.inter_broker.messages.half import (
    HALF_VERSIONS,
    decode_half_intake,
    encode_intake_reply,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_FRAME_BYTES = 2**31 - 1  # a produced batch, decompressed: socket.request.max.bytes applies
MAX_ELEMENTS = 20_000_000  # headers of records, as many as may be produced


def answer(request: Request, services: "Services") -> bytes | Awaitable[Any]:
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, HALF_VERSIONS)
    request.in_flight.let_next_start()  # of another partition of the sender
    return _take(request.message, services)


async def _take(intake: HalfIntake, services: "Services") -> Any:
    reply = await services.deferred.take_intake_here(intake)
    if reply.code is not ErrorCode.NONE:
        return respond_refusal(Refusal(reply.code), HALF_VERSIONS)
    return respond_payload([encode_intake_reply(reply)], HALF_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> HalfIntake:
    return decode_half_intake(body, budget)


API = Api(
    key=PrivateKey.HALF_INTAKE,
    versions=HALF_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(HALF_VERSIONS),
    max_frame_bytes=MAX_FRAME_BYTES,
    max_elements=MAX_ELEMENTS,
)
