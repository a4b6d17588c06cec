"""The bit fields that tell a caller what it may do with a resource (KIP-430)."""

from penstock.security.authorizer import Authorizer, Operation, ResourceType
from penstock.security.principal import Caller

NOT_ASKED = -(2**31)  # the field's value where the client did not ask

_VALID_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(
    authorizer: Authorizer, caller: Caller, resource: ResourceType, name: str
) -> int:
    """A bit for every operation of this resource that the caller may do."""
    return sum(
        1 << operation
        for operation in _VALID_OPERATIONS[resource]
        if authorizer.allows(caller, operation, resource, name)
    )
