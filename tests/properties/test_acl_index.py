"""The index of access control lists decides as a model does that looks at every rule."""

import random
from ipaddress import ip_address, ip_network
from itertools import product

import pytest
from tests.profile import scaled

from penstock.model.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclPermission,
    PatternType,
    ResourcePattern,
)
from penstock.security.acl_index import Access, AclIndex
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Principal

CASES = scaled(test=2_000, verify=20_000, release=50_000)
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
NAMES = ("a", "ab", "abc", "b", "*")
REQUESTED = ("a", "ab", "abc", "abcd", "b", "c", "*x")
PRINCIPALS = ("User:*", "User:ada", "User:bob", "Group:ada")
HOSTS = ("*", "10.0.0.1", "10.0.0.0/8", "10.0.0.0/31", "::1", "fe80::/16", "a.host")
OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)
DESCRIBES = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}


def draw_binding(choices: random.Random) -> AclBinding:
    kind = choices.choice((PatternType.LITERAL, PatternType.PREFIXED))
    names = NAMES if kind is PatternType.LITERAL else NAMES[:-1]
    return AclBinding(
        ResourcePattern(choices.choice(TYPES), choices.choice(names), kind),
        AccessControlEntry(
            choices.choice(PRINCIPALS),
            choices.choice(HOSTS),
            choices.choice(OPERATIONS),
            choices.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
        ),
    )


def draw_access(choices: random.Random) -> Access:
    return Access(
        choices.choice(
            (Principal("User", "ada"), Principal("User", "bob"), Principal("User", "*"))
        ),
        choices.choice(("10.0.0.1", "10.0.0.2", "192.168.0.1", "::1", "fe80::7")),
        choices.choice(OPERATIONS[1:]),
    )


def index_of(bindings: list[AclBinding]) -> AclIndex:
    index = AclIndex()
    for pattern in {binding.pattern for binding in bindings}:
        index.replace(pattern, [entry for kept, entry in bindings if kept == pattern])
    return index


# -- the model -----------------------------------------------------------------------------


def concerns(binding: AclBinding, access: Access, resource: ResourceType, name: str) -> bool:
    """Whether the rule is for this resource, principal and host."""
    (kind, pattern, form), (principal, host, _, _) = binding
    if kind is not resource:
        return False
    is_prefix = form is PatternType.PREFIXED
    if not (name.startswith(pattern) if is_prefix else pattern in (name, "*")):
        return False
    if principal not in ("User:*", f"{access.principal.kind}:{access.principal.name}"):
        return False
    if "/" in host:
        return ip_address(access.host) in ip_network(host)
    return host in ("*", access.host)


def is_for(binding: AclBinding, resource: ResourceType, name: str) -> bool:
    (kind, pattern, form), _ = binding
    if kind is not resource:
        return False
    return name.startswith(pattern) if form is PatternType.PREFIXED else pattern in (name, "*")


def naive(
    bindings: list[AclBinding], access: Access, resource: ResourceType, name: str, opens: bool
) -> bool:
    if not any(is_for(binding, resource, name) for binding in bindings):
        return opens
    relevant = [rule for rule in bindings if concerns(rule, access, resource, name)]
    wanted = access.operation
    for _, (_, _, operation, permission) in relevant:
        if permission is AclPermission.DENY and operation in (wanted, AclOperation.ALL):
            return False
    allowing = {wanted, AclOperation.ALL}
    if wanted is AclOperation.DESCRIBE:
        allowing |= DESCRIBES
    if wanted is AclOperation.DESCRIBE_CONFIGS:
        allowing.add(AclOperation.ALTER_CONFIGS)
    return any(
        permission is AclPermission.ALLOW and operation in allowing
        for _, (_, _, operation, permission) in relevant
    )


def naive_any(
    bindings: list[AclBinding], access: Access, resource: ResourceType, opens: bool
) -> bool:
    """Asks for every name that some rule tells from others, and for names of no rule's."""
    named = {binding.pattern.name for binding in bindings} - {"*"}
    names = {"~fresh", *named, *(f"{name}~" for name in named)}
    return any(naive(bindings, access, resource, name, opens) for name in names)


# -- the property --------------------------------------------------------------------------


def test_every_decision_is_the_models() -> None:
    choices = random.Random(20260711)
    allowed = 0
    for case in range(CASES):
        bindings = [draw_binding(choices) for _ in range(choices.randrange(9))]
        index, access = index_of(bindings), draw_access(choices)
        opens = choices.random() < 0.3
        for resource, name in product(TYPES, REQUESTED):
            decision = index.decide(access, resource, name, open_without_rules=opens)
            expected = naive(bindings, access, resource, name, opens)
            assert decision.is_allowed == expected, (case, bindings, access, resource, name)
            allowed += expected
            if decision.rule is not None:
                assert concerns(decision.rule, access, resource, name)
        for resource in TYPES:
            may = index.may_be_allowed(access, resource, open_without_rules=opens)
            expected = naive_any(bindings, access, resource, opens)
            assert may == expected, (case, bindings, access, resource, opens)
    assert CASES < allowed < 12 * CASES  # both outcomes are common


def test_removing_one_rule_of_several_leaves_the_others_in_effect() -> None:
    """CVE-2024-27309."""
    choices = random.Random(27309)
    for _ in range(CASES // 4):
        bindings = list(dict.fromkeys(draw_binding(choices) for _ in range(6)))
        index = index_of(bindings)
        gone = bindings.pop(choices.randrange(len(bindings)))
        index.replace(gone.pattern, [entry for kept, entry in bindings if kept == gone.pattern])
        assert list(index.bindings()) == sorted(bindings)
        access = draw_access(choices)
        for resource, name in product(TYPES, REQUESTED):
            decision = index.decide(access, resource, name, open_without_rules=False)
            assert decision.is_allowed == naive(bindings, access, resource, name, False)


@pytest.mark.parametrize("permission", AclPermission)
def test_a_rule_that_denies_one_of_many_wins(permission: AclPermission) -> None:
    everything = ResourcePattern(ResourceType.TOPIC, "*")
    rules = [
        AclBinding(
            everything,
            AccessControlEntry("User:*", "*", AclOperation.ALL, AclPermission.ALLOW),
        ),
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, "pay", PatternType.PREFIXED),
            AccessControlEntry("User:ada", "10.0.0.0/8", AclOperation.READ, permission),
        ),
    ]
    index = index_of(rules)
    ada = Access(Principal("User", "ada"), "10.2.3.4", AclOperation.READ)
    decision = index.decide(ada, ResourceType.TOPIC, "payments", open_without_rules=False)
    assert decision.is_allowed is (permission is AclPermission.ALLOW)
    elsewhere = ada._replace(host="11.2.3.4")
    assert index.decide(
        elsewhere, ResourceType.TOPIC, "payments", open_without_rules=False
    ).is_allowed


def test_filters_match_as_kafkas_do() -> None:
    entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermission.ALLOW)
    literal = AclBinding(ResourcePattern(ResourceType.TOPIC, "ab"), entry)
    everything = AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), entry)
    prefix = AclBinding(ResourcePattern(ResourceType.TOPIC, "a", PatternType.PREFIXED), entry)
    rules = [literal, everything, prefix]

    def matched(wanted: AclFilter) -> list[AclBinding]:
        return [rule for rule in rules if wanted.matches(rule)]

    assert matched(AclFilter()) == rules
    assert matched(AclFilter(name="ab", pattern_type=PatternType.MATCH)) == rules
    assert matched(AclFilter(name="b", pattern_type=PatternType.MATCH)) == [everything]
    assert matched(AclFilter(name="ab")) == [literal]
    assert matched(AclFilter(name="a", pattern_type=PatternType.PREFIXED)) == [prefix]
    assert matched(AclFilter(pattern_type=PatternType.LITERAL)) == [literal, everything]
    assert matched(AclFilter(resource_type=ResourceType.GROUP)) == []
    assert matched(AclFilter(principal="User:b")) == []
    assert matched(AclFilter(operation=AclOperation.WRITE)) == []
    assert matched(AclFilter(permission=AclPermission.DENY)) == []
    assert matched(AclFilter(host="10.0.0.1")) == []
