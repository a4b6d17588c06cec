"""LeaveGroup (key 13), versions 0-5: removes members before their sessions expire.

Version 3 added several members at once, also by group instance id (KIP-345), 5 a reason. Before
version 3 the member's error is the error of the response.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.requests import LeaveResult, LeavingMember
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.LEAVE_GROUP
FIRST_WITH_SEVERAL = 3


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    if not allows_group(request, services, AclOperation.READ, request.message.group_id):
        return _build(request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    return _leave(request, services)


async def _leave(request: Request, services: "Services") -> Any:
    code, results = await services.groups.leave(request.message.group_id, _read(request))
    if request.version < FIRST_WITH_SEVERAL and code is ErrorCode.NONE and results:
        code = results[0].error
    return _build(request.version, code, results)


def _read(request: Request) -> tuple[LeavingMember, ...]:
    message = request.message
    if request.version < FIRST_WITH_SEVERAL:
        return (LeavingMember(message.member_id, None),)
    return tuple(
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
        for member in message.members
    )


def _build(version: int, code: ErrorCode, results: tuple[LeaveResult, ...]) -> Any:
    shape = response_shape(KEY, version)
    members: tuple[Any, ...] = ()
    if version >= FIRST_WITH_SEVERAL:
        members = tuple(
            shape["members"](
                member_id=result.member,
                group_instance_id=result.instance,
                error_code=result.error,
            )
            for result in results
        )
    return shape(throttle_time=timedelta(), error_code=code, members=members)


API = Api(key=KEY, versions=range(6), answer=answer)
