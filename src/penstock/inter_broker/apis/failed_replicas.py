"""FailedReplicas (private key 31004), version 0: the logs of these replicas have failed.

The controller elects other leaders for them and does not elect these replicas again until their
broker re-registers. With the tag `damaged` it only replaces a leader by another in-sync replica.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_refusal,
    respond_success,
    respond_unsupported,
)
from penstock.inter_broker.messages.failed_replicas import (
    FAILED_REPLICAS_VERSIONS,
    FailedReplicasRequest,
    decode_failed_replicas,
)
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> bytes:
    message: FailedReplicasRequest = request.message
    try:
        membership = check_broker(request, services).membership
        handle = (
            membership.replace_damaged_leaders if message.is_damaged else membership.fail_replicas
        )
        await handle(
            message.broker, message.broker_epoch, message.partitions, timeout_ms=message.timeout_ms
        )
    except Refusal as refusal:
        return respond_refusal(refusal, FAILED_REPLICAS_VERSIONS)
    return respond_success(FAILED_REPLICAS_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> FailedReplicasRequest:
    return decode_failed_replicas(body, budget)


API = Api(
    key=PrivateKey.FAILED_REPLICAS,
    versions=FAILED_REPLICAS_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(FAILED_REPLICAS_VERSIONS),
)
