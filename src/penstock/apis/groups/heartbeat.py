"""Heartbeat (key 12), versions 0-4: keeps a member's session, and tells it to join a rebalance.

Version 3 added static members.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.requests import Heartbeat
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.HEARTBEAT


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    if not allows_group(request, services, AclOperation.READ, request.message.group_id):
        return _build(request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _heartbeat(request, services)


async def _heartbeat(request: Request, services: "Services") -> Any:
    message = request.message
    heartbeat = Heartbeat(
        group=message.group_id,
        member=message.member_id,
        instance=getattr(message, "group_instance_id", None),
        generation=message.generation_id,
    )
    return _build(request.version, await services.groups.heartbeat(heartbeat))


def _build(version: int, code: ErrorCode) -> Any:
    return response_shape(KEY, version)(throttle_time=timedelta(), error_code=code)


API = Api(key=KEY, versions=range(5), answer=answer)
