"""ReplicasFailed (private key 31004), version 0: a broker cannot serve these replicas any more,
since their log has failed. The controller has others lead them.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.inter_broker.apis.responses import answer_done, answer_refusal, answer_unsupported
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_messages import (
    FAILED_VERSIONS,
    FailedReplicas,
    decode_failed,
)

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> bytes:
    told: FailedReplicas = request.message
    try:
        membership = check_broker(request, services).membership
        await membership.fail_replicas(
            told.broker, told.broker_epoch, told.partitions, timeout_ms=told.timeout_ms
        )
    except Refusal as refusal:
        return answer_refusal(refusal, FAILED_VERSIONS)
    return answer_done(FAILED_VERSIONS)


def _read(body: memoryview, version: int) -> FailedReplicas:
    return decode_failed(body)


API = Api(
    key=PrivateKey.REPLICAS_FAILED,
    versions=FAILED_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=answer_unsupported(FAILED_VERSIONS),
    max_frame_bytes=16 << 20,
)
