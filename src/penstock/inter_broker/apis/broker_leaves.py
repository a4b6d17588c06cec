"""BrokerLeaves (private key 31002), version 0: before it stops, a broker has the controller move
what it leads to others. Answered with the partitions that nobody else can lead.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.inter_broker.apis.responses import answer_refusal, answer_unsupported
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_messages import (
    LEAVE_VERSIONS,
    LeaveRequest,
    PrivateAnswer,
    decode_leave,
    encode_answer,
)

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> bytes:
    asked: LeaveRequest = request.message
    try:
        membership = check_broker(request, services).membership
        left = await membership.leave(asked.broker, asked.broker_epoch, timeout_ms=asked.timeout_ms)
    except Refusal as refusal:
        return answer_refusal(refusal, LEAVE_VERSIONS)
    first, last = LEAVE_VERSIONS[0], LEAVE_VERSIONS[-1]
    return encode_answer(PrivateAnswer(ErrorCode.NONE, None, first, last, left))


def _read(body: memoryview, version: int) -> LeaveRequest:
    return decode_leave(body)


API = Api(
    key=PrivateKey.BROKER_LEAVES,
    versions=LEAVE_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=answer_unsupported(LEAVE_VERSIONS),
    max_frame_bytes=1 << 10,
)
