"""ControllerRequest (private key 31001), version 0: LeaderAndIsr, StopReplica or UpdateMetadata.

Responds once the request is applied, or was joined with its other parts. Requests with a stale
controller or broker epoch are rejected, and the sender gives up. docs/inter_broker.md has the
layout.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_refusal,
    respond_success,
    respond_unsupported,
)
from penstock.inter_broker.messages.controller_request import (
    CONTROLLER_REQUEST_VERSIONS,
    decode_controller_request,
)
from penstock.model.cluster import ControllerRequest
from penstock.model.errors import Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> bytes:
    try:
        check_broker(request, services).handle_controller_request(request.message)
    except Refusal as refusal:
        return respond_refusal(refusal, CONTROLLER_REQUEST_VERSIONS)
    except Exception as error:
        # Replicas or metadata may be half updated: the broker ends (docs/failures.md).
        services.run(_end_broker(error))
        raise
    return respond_success(CONTROLLER_REQUEST_VERSIONS)


async def _end_broker(error: Exception) -> None:
    raise error


def _read(body: memoryview, version: int, budget: RequestBudget) -> ControllerRequest:
    return decode_controller_request(body, budget)


API = Api(
    key=PrivateKey.CONTROLLER_REQUEST,
    versions=CONTROLLER_REQUEST_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(CONTROLLER_REQUEST_VERSIONS),
)
