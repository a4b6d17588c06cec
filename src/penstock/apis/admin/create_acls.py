"""CreateAcls (key 30), versions 1-3: adds rules; one result for each, in the order of the request.

A rule that exists already is no error. Rules of one resource are added together or not at all; they
are in effect on this broker before it answers.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.acl_messages import (
    CHANGE_ERRORS,
    NO_AUTHORIZER,
    build_result,
    read_binding,
    refuse_change,
)
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import response_shape
from penstock.controller.interface import ApiError
from penstock.model.acls import AclBinding, InvalidAcl, ResourcePattern
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services
    from penstock.controller.acl_store import ChangesAcls


async def answer(request: Request, services: "Services") -> Any:
    results = await _create(request, services)
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        results=tuple(build_result(shape["results"], refused) for refused in results),
    )


API = Api(
    key=ApiKey.CREATE_ACLS,
    versions=range(1, 4),
    answer=answer,
    elements_share=1 / 2,  # each may be a znode of its own
)


async def _create(request: Request, services: "Services") -> list[ApiError | None]:
    creations = request.message.creations
    if not allows_cluster(request, services, AclOperation.ALTER):
        denied = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs ALTER on the cluster",
        )
        return [denied] * len(creations)
    if services.acls is None:
        return [NO_AUTHORIZER] * len(creations)
    read = [_try_read(creation) for creation in creations]
    bindings = [binding for binding in read if isinstance(binding, AclBinding)]
    refused = await _add(services.acls, bindings)
    for binding in bindings:
        if binding.pattern not in refused:
            services.logger.info(
                "acl_created", f"{request.caller.principal} has created: {binding}"
            )
    return [
        refused.get(binding.pattern) if isinstance(binding, AclBinding) else binding
        for binding in read
    ]


def _try_read(creation: Any) -> AclBinding | ApiError:
    try:
        return read_binding(creation)
    except InvalidAcl as error:
        return ApiError(ErrorCode.INVALID_REQUEST, clip(str(error)) or "")


async def _add(
    acls: "ChangesAcls", bindings: Sequence[AclBinding]
) -> dict[ResourcePattern, ApiError]:
    """The patterns whose rules could not be stored; others are stored all the same."""
    by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in bindings:
        by_pattern.setdefault(binding.pattern, []).append(binding)
    refused: dict[ResourcePattern, ApiError] = {}
    for pattern, rules in by_pattern.items():
        try:
            await acls.add(rules)
        except CHANGE_ERRORS as error:
            refused[pattern] = refuse_change(error)
    return refused
