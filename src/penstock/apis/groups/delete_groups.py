"""DeleteGroups (key 42), versions 0-2: deletes empty groups with their committed offsets."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, Request
from penstock.apis.groups.per_group import for_each_group
from penstock.apis.response_shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.DELETE_GROUPS


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)

    async def delete(group: str) -> Any:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if allows_group(request, services, AclOperation.DELETE, group):
            code = await services.groups.delete_group(group)
        return shape["results"](group_id=group, error_code=code)

    results = await for_each_group(request.message.groups_names, delete)
    return shape(throttle_time=timedelta(), results=tuple(results))


API = Api(key=KEY, versions=range(3), answer=answer)
