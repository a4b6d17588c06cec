"""DescribeGroups (key 15), versions 0-6: state, protocol and members of classic groups.

Version 3 added authorized operations, 4 static members, 6 returns GROUP_ID_NOT_FOUND for a group
that does not exist; before, such a group is Dead without an error.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import OPERATIONS_NOT_ASKED, allows_group, authorized_operations
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.groups.per_group import for_each_group
from penstock.apis.response_shapes import Shape, response_shape
from penstock.coordinators.group.requests import DEAD, DescribedGroup
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.DESCRIBE_GROUPS
FIRST_WITH_NOT_FOUND = 6


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)

    async def describe(group: str) -> Any:
        if allows_group(request, services, AclOperation.DESCRIBE, group):
            described = await services.groups.describe(group)
        else:
            described = DescribedGroup(group=group, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _build(request, services, shape["groups"], described)

    groups = await for_each_group(request.message.groups, describe)
    return shape(throttle_time=timedelta(), groups=tuple(groups))


def _build(request: Request, services: "Services", shape: Shape, group: DescribedGroup) -> Any:
    code, state = group.error, group.state
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        state = DEAD
        if request.version < FIRST_WITH_NOT_FOUND:
            code = ErrorCode.NONE
    return shape(
        error_code=code,
        error_message=clip(group.message),
        group_id=group.group,
        group_state=state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            shape["members"](
                member_id=member.member,
                group_instance_id=member.instance,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=_operations(request, services, group),
    )


def _operations(request: Request, services: "Services", group: DescribedGroup) -> int:
    is_requested = getattr(request.message, "include_authorized_operations", False)
    if not is_requested or group.error is not ErrorCode.NONE:
        return OPERATIONS_NOT_ASKED
    return authorized_operations(request, services, ResourceType.GROUP, group.group)


API = Api(key=KEY, versions=range(7), answer=answer)
