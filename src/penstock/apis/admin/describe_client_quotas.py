"""DescribeClientQuotas (key 48), versions 0-1: the quotas of the entities that a filter matches.

The versions differ in their encoding. The broker answers from its copy, which it enforces. A user's
credentials lie beside the quotas and are not described.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.quota_messages import UnknownEntityType, entity_fields, read_filter
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.model.quotas import InvalidQuota, QuotaEntity, Quotas
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    matching = _find(request, services)
    if isinstance(matching, ApiError):
        return shape(
            throttle_time=timedelta(),
            error_code=matching.code,
            error_message=clip(matching.message),
            entries=None,
        )
    return shape(
        throttle_time=timedelta(),
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=tuple(_entries(shape["entries"], matching)),
    )


API = Api(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=range(2), answer=answer)


def _find(request: Request, services: "Services") -> list[tuple[QuotaEntity, Quotas]] | ApiError:
    if not allows_cluster(request, services, AclOperation.DESCRIBE_CONFIGS):
        return ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs DESCRIBE_CONFIGS on the cluster",
        )
    try:
        wanted = read_filter(request.message)
    except InvalidQuota as error:
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    except UnknownEntityType as error:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error))
    stored = services.stored_quotas
    quotas = {} if stored is None else stored.quotas()
    return [(entity, values) for entity, values in quotas.items() if wanted.accepts(entity)]


def _entries(shape: Shape, matching: Iterable[tuple[QuotaEntity, Quotas]]) -> Iterable[Any]:
    for entity, values in matching:
        yield shape(
            entity=entity_fields(shape["entity"], entity),
            values=tuple(
                shape["values"](key=key.value, value=value) for key, value in sorted(values.items())
            ),
        )
