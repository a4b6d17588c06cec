"""The znodes of access control lists: the paths and the JSON of Kafka 3.9.

Literal patterns lie where they always did, others below /kafka-acl-extended, by their type. A
notification is a sequential znode that names the pattern whose rules have changed.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from penstock.metadata_store.errors import DamagedZnode, InvalidPath
from penstock.metadata_store.paths import check_path
from penstock.model.acls import (
    AccessControlEntry,
    AclPermission,
    PatternType,
    ResourcePattern,
    kafka_word,
)
from penstock.security.authorizer import AclOperation, ResourceType

LITERAL_ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = f"{EXTENDED_ACLS}/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
_NOTIFICATION = "acl_changes_"

_TYPES = {kafka_word(resource): resource for resource in ResourceType}
_OPERATIONS = {kafka_word(operation): operation for operation in AclOperation}
_PERMISSIONS = {kafka_word(permission): permission for permission in AclPermission}
_ROOTS = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}

# Parents first.
ACL_ZNODES = (
    LITERAL_ACLS,
    *(f"{LITERAL_ACLS}/{name}" for name in _TYPES),
    EXTENDED_ACLS,
    PREFIXED_ACLS,
    *(f"{PREFIXED_ACLS}/{name}" for name in _TYPES),
    LITERAL_CHANGES,
    EXTENDED_CHANGES,
)


class PatternList(NamedTuple):
    """A znode whose children are named like the resources."""

    path: str
    resource_type: ResourceType
    pattern_type: PatternType

    def pattern(self, name: str) -> ResourcePattern:
        return ResourcePattern(self.resource_type, name, self.pattern_type)


PATTERN_LISTS = tuple(
    PatternList(f"{root}/{word}", resource, kind)
    for kind, root in _ROOTS.items()
    for word, resource in _TYPES.items()
)


class UnstorableName(ValueError):
    """Kafka writes a resource's name into a path as it is; no path can have this one."""


def acl_path(pattern: ResourcePattern) -> str:
    """Or UnstorableName: with a slash Kafka would make a znode that it does not find again."""
    name = pattern.name
    path = f"{_ROOTS[pattern.pattern_type]}/{kafka_word(pattern.resource_type)}/{name}"
    try:
        check_path(path)
    except InvalidPath as error:
        raise UnstorableName(str(error)) from None
    if "/" in name:
        raise UnstorableName(
            f"{name[:100]!r} has a slash, which the name of a znode cannot have; use a prefix that "
            "ends before it"
        )
    return path


def notification_path(pattern: ResourcePattern) -> str:
    """Without its number."""
    is_literal = pattern.pattern_type is PatternType.LITERAL
    return f"{LITERAL_CHANGES if is_literal else EXTENDED_CHANGES}/{_NOTIFICATION}"


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": kafka_word(entry.permission),
            "operation": kafka_word(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":")).encode()


def decode_entries(path: str, data: bytes) -> frozenset[AccessControlEntry]:
    """Or DamagedZnode: a rule that is not understood may be one that denies."""
    if not data:
        return frozenset()
    try:
        return frozenset(
            AccessControlEntry(
                _text(acl["principal"]),
                _text(acl["host"]),
                _OPERATIONS[acl["operation"]],
                _PERMISSIONS[acl["permissionType"]],
            )
            for acl in json.loads(data)["acls"]
        )
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedZnode(path, f"it has no list of ACLs ({error!r})") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def encode_notification(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{kafka_word(pattern.resource_type)}:{pattern.name}".encode()
    fields = {
        "version": 1,
        "resourceType": kafka_word(pattern.resource_type),
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_notification(path: str, data: bytes) -> ResourcePattern:
    """Or DamagedZnode."""
    try:
        if path.startswith(f"{EXTENDED_CHANGES}/"):
            fields = json.loads(data)
            kind = PatternType[str(fields["patternType"]).upper()]
            return ResourcePattern(_TYPES[fields["resourceType"]], _text(fields["name"]), kind)
        word, _, name = data.decode().partition(":")
        return ResourcePattern(_TYPES[word], name)
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedZnode(path, f"it does not name a resource ({error!r})") from None
