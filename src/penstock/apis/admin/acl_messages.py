"""Rules and filters as requests and responses have them, shared by the three APIs of ACLs."""

from typing import Any

from penstock.apis.response_shapes import Shape
from penstock.controller.acl_store import TooManyChanges
from penstock.controller.acl_znodes import UnstorableName, acl_path
from penstock.controller.interface import ApiError
from penstock.metadata_store.errors import (
    ConnectionLoss,
    DamagedZnode,
    DataTooLarge,
    MetadataStoreError,
    SessionExpired,
)
from penstock.model.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclPermission,
    InvalidAcl,
    PatternType,
    ResourcePattern,
    check_binding,
)
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import AclOperation, ResourceType

NO_AUTHORIZER = ApiError(
    ErrorCode.SECURITY_DISABLED,
    "this broker has no authorizer, so there are no ACLs; set authorizer.class.name",
)
# What changing rules may fail with.
CHANGE_ERRORS = (UnstorableName, TooManyChanges, DamagedZnode, MetadataStoreError)
_ANY = 1


def read_binding(creation: Any) -> AclBinding:
    """The rule, or InvalidAcl."""
    try:
        pattern = ResourcePattern(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        )
        entry = AccessControlEntry(
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            AclPermission(creation.permission_type),
        )
    except ValueError as error:  # of an enum
        raise InvalidAcl(f"{error}; a rule has one type, pattern, operation, permission") from None
    binding = check_binding(AclBinding(pattern, entry))
    try:
        acl_path(pattern)
    except UnstorableName as error:
        raise InvalidAcl(str(error)) from None
    return binding


def read_filter(wanted: Any) -> AclFilter:
    """The filter, or InvalidAcl."""
    try:
        return AclFilter(
            resource_type=_find(ResourceType, wanted.resource_type_filter),
            name=wanted.resource_name_filter,
            pattern_type=PatternType(wanted.pattern_type_filter),
            principal=wanted.principal_filter,
            host=wanted.host_filter,
            operation=_find(AclOperation, wanted.operation),
            permission=_find(AclPermission, wanted.permission_type),
        )
    except ValueError as error:
        raise InvalidAcl(f"{error}; a filter has what exists, or {_ANY} for any") from None


def _find(kind: Any, code: int) -> Any:
    return None if code == _ANY else kind(code)


def entry_fields(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission_type": entry.permission.value,
    }


def pattern_fields(pattern: ResourcePattern) -> dict[str, Any]:
    return {
        "resource_type": pattern.resource_type.value,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.value,
    }


def build_result(shape: Shape, refused: ApiError | None, **fields: Any) -> Any:
    return shape(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.message,
        **fields,
    )


def refuse_change(error: Exception) -> ApiError:
    """The error of a change that failed with one of CHANGE_ERRORS."""
    if isinstance(error, ConnectionLoss | SessionExpired):
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the metadata store did not answer, so the change was made or not; list the rules, "
            "and try again",
        )
    if isinstance(error, TooManyChanges):
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    if isinstance(error, UnstorableName):
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, DataTooLarge):
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the resource has too many rules for one znode: {error}; use prefixes or User:*",
        )
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
