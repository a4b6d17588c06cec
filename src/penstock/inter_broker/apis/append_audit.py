"""AppendAudit (private key 31015), version 0: events of another broker, to a partition's leader.

Answered when every in-sync replica has them. The payload is empty.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.private_responses import (
    respond_refusal,
    respond_success,
    respond_unsupported,
)
from penstock.inter_broker.audit_appends import append_here
from penstock.inter_broker.messages.append_audit import (
    APPEND_AUDIT_VERSIONS,
    AppendAuditRequest,
    decode_append_audit,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> bytes | Awaitable[Any]:
    try:
        check_broker(request, services)
    except Refusal as refusal:
        return respond_refusal(refusal, APPEND_AUDIT_VERSIONS)
    return _append(request.message, services)


async def _append(message: AppendAuditRequest, services: "Services") -> bytes:
    code = await append_here(
        services.replicas,
        message.partition,
        bytearray(message.batch),
        timeout_ms=message.timeout_ms,
    )
    if code is not ErrorCode.NONE:
        return respond_refusal(Refusal(code), APPEND_AUDIT_VERSIONS)
    return respond_success(APPEND_AUDIT_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> AppendAuditRequest:
    return decode_append_audit(body, budget)


API = Api(
    key=PrivateKey.APPEND_AUDIT,
    versions=APPEND_AUDIT_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=respond_unsupported(APPEND_AUDIT_VERSIONS),
)
