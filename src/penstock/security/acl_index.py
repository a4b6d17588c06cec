"""The rules of a cluster, indexed by what they are for, and the decision over them.

Pure, and a broker's own. As in Kafka: a rule that denies wins over any that allows; what reads,
writes, deletes or alters may also describe, and what alters configs may describe them. These
implications hold for rules that allow only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.acls import (
    EVERYBODY,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclPermission,
    PatternType,
    ResourcePattern,
)
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Principal


class Reason(Enum):
    """What decided."""

    SUPER_USER = "the principal is one of super.users"
    DENIED_BY_RULE = "a rule denies it"
    ALLOWED_BY_RULE = "a rule allows it"
    NO_RULE_ALLOWS = "the resource has rules, and none allows it"
    NO_RULES_CLOSED = "the resource has no rules, and allow.everyone.if.no.acl.found is off"
    NO_RULES_OPEN = "the resource has no rules, and allow.everyone.if.no.acl.found is on"


class Decision(NamedTuple):
    is_allowed: bool
    reason: Reason
    rule: AclBinding | None = None  # the first one that decided, if one did


class Access(NamedTuple):
    """What somebody wants to do, and from where."""

    principal: Principal
    host: str
    operation: AclOperation


# Operations that allow another one as well.
_IMPLYING: Mapping[AclOperation, frozenset[AclOperation]] = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
    }
)
_NONE: frozenset[AclOperation] = frozenset()


class _Rule:
    """An entry with what comparing it needs."""

    __slots__ = ("binding", "network")

    def __init__(self, binding: AclBinding) -> None:
        self.binding = binding
        self.network = _find_network(binding.entry.host)

    def concerns(self, access: Access) -> bool:
        """Whether it is about this principal and host."""
        principal, host, _, _ = self.binding.entry
        if principal not in (EVERYBODY, str(access.principal)):
            return False
        return host in (WILDCARD, access.host) or self._has_address(access.host)

    def _has_address(self, host: str) -> bool:
        if self.network is None:
            return False
        try:
            return ip_address(host) in self.network
        except ValueError:
            return False

    def denies(self, access: Access) -> bool:
        _, _, operation, permission = self.binding.entry
        return (
            permission is AclPermission.DENY
            and operation in (AclOperation.ALL, access.operation)
            and self.concerns(access)
        )

    def allows(self, access: Access) -> bool:
        _, _, operation, permission = self.binding.entry
        return (
            permission is AclPermission.ALLOW
            and (
                operation in (AclOperation.ALL, access.operation)
                or operation in _IMPLYING.get(access.operation, _NONE)
            )
            and self.concerns(access)
        )


class AclIndex:
    """Owned by its authorizer. A decision looks at the rules of one name, not at all of them."""

    def __init__(self) -> None:
        self._rules: dict[ResourcePattern, tuple[_Rule, ...]] = {}
        # How long the prefixes of a type are, in order: one lookup each.
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._prefix_counts: dict[ResourceType, Counter[int]] = {}  # by length; no zeros

    def replace(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Take these as all rules of the pattern."""
        rules = tuple(_Rule(AclBinding(pattern, entry)) for entry in sorted(set(entries)))
        added = bool(rules) - (pattern in self._rules)
        if rules:
            self._rules[pattern] = rules
        else:
            self._rules.pop(pattern, None)
        if added and pattern.pattern_type is PatternType.PREFIXED:
            self._count_prefix(pattern, added)

    def _count_prefix(self, pattern: ResourcePattern, added: int) -> None:
        """Without a look at the other patterns: a broker reads thousands of them in one go."""
        counts = self._prefix_counts.setdefault(pattern.resource_type, Counter())
        length = len(pattern.name)
        counts[length] += added
        if not counts[length]:
            del counts[length]
        self._prefix_lengths[pattern.resource_type] = tuple(sorted(counts))

    def patterns(self) -> list[ResourcePattern]:
        return sorted(self._rules)

    def bindings(self) -> Iterator[AclBinding]:
        """All rules, in a fixed order."""
        for pattern in sorted(self._rules):
            for rule in self._rules[pattern]:
                yield rule.binding

    def __len__(self) -> int:
        return sum(map(len, self._rules.values()))

    def decide(
        self, access: Access, resource: ResourceType, name: str, *, open_without_rules: bool
    ) -> Decision:
        rules = self._find(resource, name)
        if not rules and open_without_rules:
            return Decision(True, Reason.NO_RULES_OPEN)
        if not rules:
            return Decision(False, Reason.NO_RULES_CLOSED)
        for rule in rules:
            if rule.denies(access):
                return Decision(False, Reason.DENIED_BY_RULE, rule.binding)
        for rule in rules:
            if rule.allows(access):
                return Decision(True, Reason.ALLOWED_BY_RULE, rule.binding)
        return Decision(False, Reason.NO_RULE_ALLOWS)

    def _find(self, resource: ResourceType, name: str) -> list[_Rule]:
        """The rules that the name falls under."""
        rules: list[_Rule] = []
        for literal in dict.fromkeys((name, WILDCARD)):
            rules += self._rules.get(ResourcePattern(resource, literal), ())
        for length in self._prefix_lengths.get(resource, ()):
            if length > len(name):
                break
            prefix = ResourcePattern(resource, name[:length], PatternType.PREFIXED)
            rules += self._rules.get(prefix, ())
        return rules

    def may_be_allowed(
        self, access: Access, resource: ResourceType, *, open_without_rules: bool
    ) -> bool:
        """Whether a resource of this type can have a name on which `decide` allows it."""
        denied = self._names(resource, PatternType.LITERAL, access, AclPermission.DENY)
        if WILDCARD in denied:
            return False
        if open_without_rules and ResourcePattern(resource, WILDCARD) not in self._rules:
            return True  # some name has no rules
        denied_prefixes = self._names(resource, PatternType.PREFIXED, access, AclPermission.DENY)
        for prefix in self._names(resource, PatternType.PREFIXED, access, AclPermission.ALLOW):
            if not _is_below(prefix, denied_prefixes):
                return True
        return any(
            name == WILDCARD or (name not in denied and not _is_below(name, denied_prefixes))
            for name in self._names(resource, PatternType.LITERAL, access, AclPermission.ALLOW)
        )

    def _names(
        self,
        resource: ResourceType,
        kind: PatternType,
        access: Access | None = None,
        permission: AclPermission | None = None,
    ) -> set[str]:
        """The names of patterns; with `access` those with a rule that decides it this way."""
        return {
            pattern.name
            for pattern, rules in self._rules.items()
            if pattern.resource_type is resource
            and pattern.pattern_type is kind
            and (
                access is None
                or any(
                    rule.denies(access) if permission is AclPermission.DENY else rule.allows(access)
                    for rule in rules
                )
            )
        }


def _is_below(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _find_network(host: str) -> IPv4Network | IPv6Network | None:
    """None: the host is compared as text. Kafka's own names of hosts stay what they are."""
    try:
        return ip_network(host)
    except ValueError:
        return None
