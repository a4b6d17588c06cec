"""Shortcuts to the authorizer, and authorized operations as the protocol's bit field.

Nothing is decided here, only by the authorizer.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

OPERATIONS_NOT_ASKED = -(2**31)  # in place of the bit field, if it was not requested

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
        ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
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


def allows_topic(
    request: Request, services: "Services", operation: AclOperation, topic: str
) -> bool:
    return services.authorizer.allows(request.caller, operation, ResourceType.TOPIC, topic)


def allows_group(
    request: Request, services: "Services", operation: AclOperation, group: str
) -> bool:
    return services.authorizer.allows(request.caller, operation, ResourceType.GROUP, group)


def allows_transaction(
    request: Request, services: "Services", operation: AclOperation, transactional_id: str
) -> bool:
    return services.authorizer.allows(
        request.caller, operation, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def allows_cluster(request: Request, services: "Services", operation: AclOperation) -> bool:
    return services.authorizer.allows(request.caller, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def authorized_operations(
    request: Request, services: "Services", resource: ResourceType, name: str
) -> int:
    """A bit per operation that the caller may perform, at the position of its code."""
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource]
        if services.authorizer.allows(request.caller, operation, resource, name)
    )
