"""ForwardedConfigs (private key 31003), version 0: config changes that another broker received.

Clients may send config changes to any broker. The receiving broker authorizes the client; the
controller, here, stores the changes. docs/inter_broker.md has the layout.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import respond_refusal, respond_unsupported
from penstock.inter_broker.messages.forwarded_configs import (
    FORWARDED_CONFIGS_VERSIONS,
    ForwardedConfigsRequest,
    as_private_result,
    decode_forwarded_configs,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse, encode_private_response
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> bytes:
    message: ForwardedConfigsRequest = request.message
    try:
        configs = check_broker(request, services).configs
    except Refusal as refusal:
        return respond_refusal(refusal, FORWARDED_CONFIGS_VERSIONS)
    refusals = await configs.alter_configs(message.changes, validate_only=message.validate_only)
    first, last = FORWARDED_CONFIGS_VERSIONS[0], FORWARDED_CONFIGS_VERSIONS[-1]
    results = tuple(map(as_private_result, refusals))
    response = PrivateResponse(ErrorCode.NONE, None, first, last, results=results)
    return encode_private_response(response)


def _read(body: memoryview, version: int, budget: RequestBudget) -> ForwardedConfigsRequest:
    return decode_forwarded_configs(body, budget)


API = Api(
    key=PrivateKey.FORWARDED_CONFIGS,
    versions=FORWARDED_CONFIGS_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(FORWARDED_CONFIGS_VERSIONS),
)
