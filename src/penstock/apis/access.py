"""Shortcuts to the authorizer, and authorized operations as the protocol's bit field.

Nothing is decided here, only by the authorizer.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.apis.api import Request
from penstock.apis.permissions import QUESTIONS
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

OPERATIONS_NOT_ASKED: Final = -(2**31)  # in place of the bit field, if it was not requested

# The operations that exist for a resource, as in Kafka, whose clients show all of them.
_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,  # groups have settings since KIP-848
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
    }
)


# These refuse on behalf of the caller: a denial is logged, unless it only decides what is shown.


def allows_topic(
    request: Request,
    services: "Services",
    operation: AclOperation,
    topic: str,
    *,
    shows: bool = False,
) -> bool:
    return _allows(request, services, operation, ResourceType.TOPIC, topic, shows)


def allows_group(
    request: Request,
    services: "Services",
    operation: AclOperation,
    group: str,
    *,
    shows: bool = False,
) -> bool:
    return _allows(request, services, operation, ResourceType.GROUP, group, shows)


def allows_transaction(
    request: Request,
    services: "Services",
    operation: AclOperation,
    transactional_id: str,
    *,
    shows: bool = False,
) -> bool:
    kind = ResourceType.TRANSACTIONAL_ID
    return _allows(request, services, operation, kind, transactional_id, shows)


def allows_cluster(
    request: Request, services: "Services", operation: AclOperation, *, shows: bool = False
) -> bool:
    return _allows(request, services, operation, ResourceType.CLUSTER, CLUSTER_NAME, shows)


def allows_any_topic(request: Request, services: "Services", operation: AclOperation) -> bool:
    """Whether there may be a topic on which the caller may do this."""
    _check_question(request, operation, ResourceType.TOPIC)
    return services.authorizer.allows_any(request.caller, operation, ResourceType.TOPIC)


def allows_resource(
    request: Request,
    services: "Services",
    operation: AclOperation,
    resource: ResourceType,
    name: str,
) -> bool:
    return _allows(request, services, operation, resource, name, False)


def _allows(
    request: Request,
    services: "Services",
    operation: AclOperation,
    resource: ResourceType,
    name: str,
    shows: bool,
) -> bool:
    _check_question(request, operation, resource)
    caller = request.caller
    is_allowed = services.authorizer.allows(caller, operation, resource, name)
    if not shows:
        log = services.access_log
        if not is_allowed:
            log.note_denied(caller, operation, resource, name, request.key.title)
        elif log.shows_allowed:
            log.note_allowed(caller, operation, resource, name, request.key.title)
    return is_allowed


def _check_question(request: Request, operation: AclOperation, resource: ResourceType) -> None:
    """A permission that docs/acls.md does not name cannot be needed."""
    assert (request.key, operation, resource) in QUESTIONS, (
        f"{request.key.title} has no row for {operation.name} on {resource.name} in `permissions`"
    )


def authorized_operations(
    request: Request, services: "Services", resource: ResourceType, name: str
) -> int:
    """A bit per operation that the caller may perform, at the position of its code."""
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource]
        if services.authorizer.allows(request.caller, operation, resource, name)
    )
