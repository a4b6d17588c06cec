"""Quotas as requests and responses have them, shared by the two APIs of client quotas."""

from collections.abc import Sequence
from typing import Any

from penstock.apis.response_shapes import Shape
from penstock.controller.acl_store import TooManyChanges
from penstock.metadata_store.errors import DamagedZnode, MetadataStoreError
from penstock.model.quotas import (
    DEFAULT_ENTITY,
    ENTITY_TYPES,
    InvalidQuota,
    QuotaEntity,
    QuotaFilter,
    QuotaMatch,
    QuotaOperation,
    check_entity,
    check_value,
    find_key,
)

# What changing quotas may fail with.
CHANGE_ERRORS = (InvalidQuota, TooManyChanges, DamagedZnode, MetadataStoreError)


class UnknownEntityType(ValueError):
    """Kafka's plugins may have others; it answers UNSUPPORTED_VERSION."""


def read_entity(parts: Sequence[Any]) -> QuotaEntity:
    """Or InvalidQuota, or UnknownEntityType."""
    names: dict[str, str] = {}
    for part in parts:
        kind = _check_type(part.entity_type)
        if kind in names:
            raise InvalidQuota(f"the entity has more than one {kind}")
        if part.entity_name == DEFAULT_ENTITY:
            raise InvalidQuota(f"the name of a {kind} is empty; the default one has no name at all")
        names[kind] = DEFAULT_ENTITY if part.entity_name is None else part.entity_name
    return check_entity(QuotaEntity(*(names.get(kind) for kind in ENTITY_TYPES)))


def read_operations(entity: QuotaEntity, operations: Sequence[Any]) -> list[QuotaOperation]:
    """Or InvalidQuota."""
    read: dict[str, QuotaOperation] = {}
    for operation in operations:
        key = find_key(entity, operation.key)
        if key in read:
            raise InvalidQuota(f"{key} is named twice")
        value = None if operation.remove else check_value(key, operation.value)
        read[key] = QuotaOperation(key, value)
    return list(read.values())


def read_filter(message: Any) -> QuotaFilter:
    """Or InvalidQuota, or UnknownEntityType."""
    matches: dict[str, QuotaMatch] = {}
    for component in message.components:
        kind = _check_type(component.entity_type)
        if kind in matches:
            raise InvalidQuota(f"the filter names {kind} twice")
        matches[kind] = QuotaMatch(kind, _read_match(component))
    if "ip" in matches and len(matches) > 1:
        raise InvalidQuota("a filter for addresses cannot be one for users or client ids as well")
    return QuotaFilter(tuple(matches.values()), message.strict)


def _read_match(component: Any) -> str | None:
    match component.match_type, component.match:
        case (0, str(name)) if name != DEFAULT_ENTITY:
            return name
        case (1, None):
            return DEFAULT_ENTITY
        case (2, None):
            return None
        case _:
            raise InvalidQuota(
                f"match type {component.match_type} of {component.entity_type}: 0 needs a name, "
                "1 is the default, and 2 is any; those have no name"
            )


def _check_type(kind: str) -> str:
    if kind in ENTITY_TYPES:
        return kind
    if not kind:
        raise InvalidQuota("the type of an entity is empty")
    raise UnknownEntityType(
        f"there are no quotas of {kind[:100]!r}; there are those of {', '.join(ENTITY_TYPES)}"
    )


def entity_fields(shape: Shape, entity: QuotaEntity) -> tuple[Any, ...]:
    return tuple(
        shape(entity_type=kind, entity_name=name or None) for kind, name in entity.parts().items()
    )
