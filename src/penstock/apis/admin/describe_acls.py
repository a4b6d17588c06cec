"""DescribeAcls (key 29), versions 1-3: the rules that a filter matches, by their resources.

The versions differ in their encoding, and in types of resources that clients know. The broker
answers from its copy, by which it decides.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.acl_messages import (
    NO_AUTHORIZER,
    build_result,
    entry_fields,
    pattern_fields,
    read_filter,
)
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import response_shape
from penstock.controller.interface import ApiError
from penstock.model.acls import AccessControlEntry, InvalidAcl, ResourcePattern
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_ByPattern = dict[ResourcePattern, list[AccessControlEntry]]


def answer(request: Request, services: "Services") -> Any:
    matching = _find(request, services)
    shape = response_shape(request.key, request.version)
    if isinstance(matching, ApiError):
        return build_result(shape, matching, throttle_time=timedelta(), resources=())
    inner = shape["resources"]
    resources = tuple(
        inner(
            **pattern_fields(pattern),
            acls=tuple(inner["acls"](**entry_fields(entry)) for entry in entries),
        )
        for pattern, entries in matching.items()
    )
    return build_result(shape, None, throttle_time=timedelta(), resources=resources)


API = Api(key=ApiKey.DESCRIBE_ACLS, versions=range(1, 4), answer=answer)


def _find(request: Request, services: "Services") -> _ByPattern | ApiError:
    if not allows_cluster(request, services, AclOperation.DESCRIBE):
        return ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs DESCRIBE on the cluster",
        )
    if services.acls is None:
        return NO_AUTHORIZER
    try:
        wanted = read_filter(request.message)
    except InvalidAcl as error:
        return ApiError(ErrorCode.INVALID_REQUEST, clip(str(error)) or "")
    matching: _ByPattern = {}
    for binding in filter(wanted.matches, services.acls.bindings()):
        matching.setdefault(binding.pattern, []).append(binding.entry)
    return matching
