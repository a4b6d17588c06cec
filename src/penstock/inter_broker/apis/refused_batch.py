"""RefusedBatch (private key 31005), version 0: a follower refuses what it fetched from this leader.

The leader checks its own log there. If that is damaged, it asks the controller for another leader.
The code is NONE if the log is whole, and CORRUPT_MESSAGE if it is not.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_refusal,
    respond_success,
    respond_unsupported,
)
from penstock.inter_broker.messages.refused_batch import (
    REFUSED_BATCH_VERSIONS,
    RefusedBatchRequest,
    decode_refused_batch,
)
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> bytes:
    message: RefusedBatchRequest = request.message
    try:
        check_broker(request, services)
        services.replicas.check_refused(
            message.tp, message.leader_epoch, message.offset, follower=message.broker
        )
    except Refusal as refusal:
        return respond_refusal(refusal, REFUSED_BATCH_VERSIONS)
    return respond_success(REFUSED_BATCH_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> RefusedBatchRequest:
    return decode_refused_batch(body, budget)


API = Api(
    key=PrivateKey.REFUSED_BATCH,
    versions=REFUSED_BATCH_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(REFUSED_BATCH_VERSIONS),
)
