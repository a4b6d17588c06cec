"""DeleteAcls (key 31), versions 1-3: removes the rules that filters match, and returns them.

One result for each filter, in the order of the request. A filter without a match is no error. Other
rules of the same resources stay (CVE-2024-27309).
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.acl_messages import (
    CHANGE_ERRORS,
    NO_AUTHORIZER,
    build_result,
    entry_fields,
    pattern_fields,
    read_filter,
    refuse_change,
)
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError
from penstock.model.acls import AclBinding, InvalidAcl
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services
    from penstock.controller.acl_store import ChangesAcls


async def answer(request: Request, services: "Services") -> Any:
    results = await _delete(request, services)
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        filter_results=tuple(_result(shape["filter_results"], result) for result in results),
    )


API = Api(key=ApiKey.DELETE_ACLS, versions=range(1, 4), answer=answer)


async def _delete(request: Request, services: "Services") -> list[list[AclBinding] | ApiError]:
    filters = request.message.filters
    if not allows_cluster(request, services, AclOperation.ALTER):
        denied = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs ALTER on the cluster",
        )
        return [denied] * len(filters)
    if services.acls is None:
        return [NO_AUTHORIZER] * len(filters)
    results = [await _remove(services.acls, wanted) for wanted in filters]
    for removed in results:
        for binding in () if isinstance(removed, ApiError) else removed:
            services.logger.info(
                "acl_deleted", f"{request.caller.principal} has deleted: {binding}"
            )
    return results


async def _remove(acls: "ChangesAcls", wanted: Any) -> list[AclBinding] | ApiError:
    try:
        [removed] = await acls.remove([read_filter(wanted)])
    except InvalidAcl as error:
        return ApiError(ErrorCode.INVALID_REQUEST, clip(str(error)) or "")
    except CHANGE_ERRORS as error:
        return refuse_change(error)
    return removed


def _result(shape: Shape, result: list[AclBinding] | ApiError) -> Any:
    if isinstance(result, ApiError):
        return build_result(shape, result, matching_acls=())
    inner = shape["matching_acls"]
    matching = tuple(
        build_result(inner, None, **pattern_fields(pattern), **entry_fields(entry))
        for pattern, entry in result
    )
    return build_result(shape, None, matching_acls=matching)
