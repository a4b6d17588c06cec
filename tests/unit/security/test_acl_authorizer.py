"""The authorizer's remembered decisions, and the index of prefixes while rules change."""

import tracemalloc

from penstock.model.acls import AccessControlEntry, AclPermission, PatternType, ResourcePattern
from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Caller, Principal

ADA = Caller(Principal("User", "ada"), "10.0.0.9", "CLIENTS")
READ, WRITE = (
    AccessControlEntry("User:ada", "*", operation, AclPermission.ALLOW)
    for operation in (AclOperation.READ, AclOperation.WRITE)
)


def prefix(name: str) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED)


def test_prefixes_count_while_their_rules_change() -> None:
    authorizer = AclAuthorizer(AuthorizerConfig())

    def readable() -> list[str]:
        return [
            name
            for name in ("a1", "b1", "abc1")
            if authorizer.allows(ADA, AclOperation.READ, ResourceType.TOPIC, name)
        ]

    for pattern in (prefix("a"), prefix("b"), prefix("b"), prefix("abc")):
        authorizer.replace(pattern, [READ])
    assert readable() == ["a1", "b1", "abc1"]
    authorizer.replace(prefix("a"), [])
    authorizer.replace(prefix("a"), [])  # as if its removal was announced twice
    assert readable() == ["b1", "abc1"]
    authorizer.replace(prefix("b"), [WRITE])
    assert readable() == ["abc1"]
    authorizer.replace(prefix("b"), [READ, WRITE])
    authorizer.replace(prefix("abc"), [])
    assert readable() == ["b1"]


def test_whether_any_topic_is_allowed_follows_the_rules() -> None:
    authorizer = AclAuthorizer(AuthorizerConfig())

    def may_write() -> bool:
        return authorizer.allows_any(ADA, AclOperation.WRITE, ResourceType.TOPIC)

    assert not may_write()
    authorizer.replace(prefix("a"), [WRITE])
    assert may_write()
    assert not authorizer.allows_any(ADA, AclOperation.READ, ResourceType.TOPIC)
    authorizer.replace(prefix("a"), [])
    assert not may_write()


def test_long_names_are_decided_without_being_kept() -> None:
    """A client that invents names must not fill the memory."""
    authorizer = AclAuthorizer(AuthorizerConfig())
    authorizer.replace(prefix("a"), [READ])
    tracemalloc.start()
    try:
        for number in range(1_000):
            name = f"a{number:030000}"
            assert authorizer.allows(ADA, AclOperation.READ, ResourceType.TOPIC, name)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1_000_000
