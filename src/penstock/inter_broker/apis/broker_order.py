"""BrokerOrder (private key 31001), version 0: the controller tells this broker what to do.

Answered when it is applied. Refused are an older controller's order and one to an earlier life of
this broker; the sender gives up then. docs/inter_broker.md has the bytes.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.inter_broker.apis.responses import answer_done, answer_refusal, answer_unsupported
from penstock.model.cluster import ControllerRequest
from penstock.model.errors import Refusal
from penstock.protocol.controller_messages import ORDER_VERSIONS, decode_order
from penstock.protocol.private_keys import PrivateKey

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> bytes:
    try:
        check_broker(request, services).take_order(request.message)
    except Refusal as refusal:
        return answer_refusal(refusal, ORDER_VERSIONS)
    return answer_done(ORDER_VERSIONS)


def _read(body: memoryview, version: int) -> ControllerRequest:
    return decode_order(body)


API = Api(
    key=PrivateKey.BROKER_ORDER,
    versions=ORDER_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=answer_unsupported(ORDER_VERSIONS),
    max_frame_bytes=64 << 20,  # a whole cluster's metadata
)
