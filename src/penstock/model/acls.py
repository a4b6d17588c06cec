"""Access control lists as values: a rule with the resources that it is for, and filters of rules.

Not a decision: `security.acl_index` decides. Codes and words are Kafka's.
"""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import ip_network
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"  # the one resource of its type


class AclOperation(IntEnum):
    """The operations of ACLs, with Kafka's codes."""

    ALL = 2  # in a rule: every operation; nobody asks for it
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The types of resources, with Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


WILDCARD = "*"  # as the name of a resource: every resource; as a host: every host
EVERYBODY = "User:*"
MAX_NAME_CHARACTERS = 32_767  # of a string on the wire


class PatternType(IntEnum):
    """How a pattern's name is compared. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2  # every pattern that a resource of this name falls under
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that rules are for."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{kafka_word(self.resource_type)}:{self.pattern_type.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    """Who may, or may not, do what from where."""

    principal: str  # User:name, or User:*
    host: str  # an address, a network as address/bits, or *
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {kafka_word(self.operation)} to {self.principal} "
            f"from {self.host}"
        )


class AclBinding(NamedTuple):
    """A rule and its resources."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


class InvalidAcl(ValueError):
    """A rule that could never have an effect, or whose effect would surprise."""


class AclFilter(NamedTuple):
    """None matches everything."""

    resource_type: ResourceType | None = None
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None

    def matches(self, binding: AclBinding) -> bool:
        principal, host, operation, permission = binding.entry
        return (
            self.matches_pattern(binding.pattern)
            and self.principal in (None, principal)
            and self.host in (None, host)
            and self.operation in (None, operation)
            and self.permission in (None, permission)
        )

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (None, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)


def check_binding(binding: AclBinding) -> AclBinding:
    """The binding itself, or InvalidAcl. As in Kafka, the operation may be one that the type of
    resource does not have: see `check_operation`."""
    (resource_type, name, pattern_type), entry = binding
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAcl(f"a rule's pattern is literal or prefixed, not {pattern_type.name}")
    if not name:
        raise InvalidAcl("the resource has an empty name; * stands for all of them")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidAcl(f"the resource's name has {len(name)} characters")
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidAcl(f"the only cluster is {CLUSTER_NAME}, not {name[:100]!r}")
    _check_principal(entry.principal)
    _check_host(entry.host)
    return binding


def check_operation(binding: AclBinding) -> AclBinding:
    """The binding itself, or InvalidAcl if nobody ever asks for its operation."""
    resource_type, operation = binding.pattern.resource_type, binding.entry.operation
    operations = (*_OPERATIONS[resource_type], AclOperation.ALL)
    if operation not in operations:
        raise InvalidAcl(
            f"{kafka_word(operation)} is no operation of {kafka_word(resource_type)}; it has "
            f"{', '.join(map(kafka_word, operations))}"
        )
    return binding


def kafka_word(member: IntEnum) -> str:
    """As in Kafka's znodes and tools: TransactionalId, DescribeConfigs."""
    return member.name.title().replace("_", "")


def _check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise InvalidAcl(
            f"{principal[:100]!r} is no principal; write User:name, or {EVERYBODY} for everybody"
        )


def _check_host(host: str) -> None:
    if host == WILDCARD:
        return
    try:
        ip_network(host)
    except ValueError as error:
        raise InvalidAcl(
            f"{host[:100]!r} is no host ({error}); write an address, a network such as "
            f"10.1.0.0/16, or {WILDCARD}: names are not looked up"
        ) from None


_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
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
        AclOperation.DESCRIBE_CONFIGS,
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
    ResourceType.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
