"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

Version 4 added the state and a filter on it, 5 the type: classic or consumer. A caller that may
describe the cluster sees all groups, others only groups that they may describe.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster, allows_group
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.LIST_GROUPS


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    message = request.message
    operation = AclOperation.DESCRIBE
    sees_all = allows_cluster(request, services, operation, shows=True)
    code, groups = await services.groups.list_groups(
        _filter(getattr(message, "states_filter", ())),
        _filter(getattr(message, "types_filter", ())),
    )
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        groups=tuple(
            shape["groups"](
                group_id=group.group,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in groups
            if sees_all or allows_group(request, services, operation, group.group, shows=True)
        ),
    )


def _filter(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.strip() for name in names)


API = Api(key=KEY, versions=range(6), answer=answer)
