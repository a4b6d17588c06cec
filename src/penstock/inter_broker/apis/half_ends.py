"""HalfEnds (private key 31014), version 0: the log end offsets of partitions with halves.

A decision waits until these are read. NOT_LEADER_OR_FOLLOWER if one of them is led elsewhere: its
end would not be the true one.
"""

from typing import TYPE_CHECKING, Any

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_payload,
    respond_refusal,
    respond_unsupported,
)
from penstock.inter_broker.messages.half import (
    HALF_VERSIONS,
    HalfEndsRequest,
    decode_half_ends,
    encode_offsets,
)
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Any:
    try:
        check_broker(request, services)
        offsets = services.deferred.log_ends_here(request.message.sources)
    except Refusal as refusal:
        return respond_refusal(refusal, HALF_VERSIONS)
    return respond_payload([encode_offsets(offsets)], HALF_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> HalfEndsRequest:
    return decode_half_ends(body, budget)


API = Api(
    key=PrivateKey.HALF_ENDS,
    versions=HALF_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(HALF_VERSIONS),
)
