"""AlterClientQuotas (key 49), versions 0-1: sets and removes quotas; one result for each entity.

The versions differ in their encoding. The quotas of an entity change together or not at all; they
are in effect on this broker before it answers.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.quota_messages import (
    CHANGE_ERRORS,
    UnknownEntityType,
    read_entity,
    read_operations,
)
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.acl_store import TooManyChanges
from penstock.controller.interface import ApiError
from penstock.controller.quota_znodes import quota_path
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.model.errors import ErrorCode
from penstock.model.quotas import InvalidQuota, QuotaEntity, QuotaOperation
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    results = await _alter(request, services)
    return shape(
        throttle_time=timedelta(),
        entries=tuple(
            _result(shape["entries"], entry, refused)
            for entry, refused in zip(request.message.entries, results, strict=True)
        ),
    )


API = Api(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    versions=range(2),
    answer=answer,
    elements_share=1 / 2,  # each may be a znode of its own
)


async def _alter(request: Request, services: "Services") -> list[ApiError | None]:
    entries = request.message.entries
    if not allows_cluster(request, services, AclOperation.ALTER_CONFIGS):
        denied = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs ALTER_CONFIGS on the cluster",
        )
        return [denied] * len(entries)
    return [await _try_alter(request, services, entry) for entry in entries]


async def _try_alter(request: Request, services: "Services", entry: Any) -> ApiError | None:
    stored = services.stored_quotas
    try:
        entity = read_entity(entry.entity)
        operations = read_operations(entity, entry.ops)
        quota_path(entity)
        if not operations or request.message.validate_only:
            return None
        if stored is None:
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "this broker keeps no quotas")
        await stored.alter(entity, operations)
    except UnknownEntityType as error:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error))
    except CHANGE_ERRORS as error:
        return _refuse(error)
    _log(request, services, entity, operations)
    return None


def _refuse(error: Exception) -> ApiError:
    if isinstance(error, InvalidQuota):
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, ConnectionLoss | SessionExpired):
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the metadata store did not answer, so the change was made or not; list the quotas, "
            "and try again",
        )
    if isinstance(error, TooManyChanges):
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _log(
    request: Request, services: "Services", entity: QuotaEntity, operations: list[QuotaOperation]
) -> None:
    changes = ", ".join(
        f"{key}={'removed' if value is None else f'{value:g}'}" for key, value in operations
    )
    services.logger.info(
        "quotas_altered",
        f"{request.caller.principal} has altered the quotas of {entity}: {changes}",
    )


def _result(shape: Shape, entry: Any, refused: ApiError | None) -> Any:
    inner = shape["entity"]
    return shape(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else clip(refused.message),
        entity=tuple(
            inner(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ),
    )
