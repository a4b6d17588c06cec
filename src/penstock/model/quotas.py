"""Client quotas as values: whom they are for, what they limit, and filters of them.

Not a decision: `security.quotas` decides. Names are Kafka's.
"""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from math import inf
from typing import NamedTuple

DEFAULT_ENTITY = (
    ""  # as the name of a user, client id or address: all that have no quota themselves
)


class QuotaKey(StrEnum):
    """What a quota limits, of one broker."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes a second
    CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes a second
    REQUEST_PERCENTAGE = "request_percentage"  # of the time of one thread
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions a second
    CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections a second


CLIENT_KEYS = tuple(key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE)
IP_KEYS = (QuotaKey.CONNECTION_CREATION_RATE,)
_WHOLE = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.CONNECTION_CREATION_RATE,
)
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
# Clients choose their ids, which are remembered. Longer ones that begin alike count as one.
MAX_CLIENT_ID = 255
# What is divided by a rate, or multiplied with it, stays a number.
MIN_RATE, MAX_RATE = 1e-9, float(_LONG_MAX)
_EPSILON = 1e-6  # as in Kafka: how far a double may be from the whole number that it stands for


class InvalidQuota(ValueError):
    """A quota that cannot be; the message says why."""


class QuotaEntity(NamedTuple):
    """Whom a quota is for. None: of no part in it; DEFAULT_ENTITY: all without a quota of their
    own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        return " and ".join(
            f"{kind} {name!r}" if name else f"every {kind} without its own"
            for kind, name in self.parts().items()
        )

    def parts(self) -> dict[str, str]:
        """The names by Kafka's types of entities."""
        names = zip(ENTITY_TYPES, self, strict=True)
        return {kind: name for kind, name in names if name is not None}


ENTITY_TYPES = ("user", "client-id", "ip")

Quotas = Mapping[QuotaKey, float]


class QuotaOperation(NamedTuple):
    key: QuotaKey
    value: float | None  # None: remove it


class QuotaMatch(NamedTuple):
    """One part of a filter: a name, DEFAULT_ENTITY, or None for any name."""

    entity_type: str
    name: str | None


class QuotaFilter(NamedTuple):
    matches: tuple[QuotaMatch, ...] = ()
    is_strict: bool = False  # entities with exactly these parts and no others

    def accepts(self, entity: QuotaEntity) -> bool:
        parts = entity.parts()
        if self.is_strict and parts.keys() != {match.entity_type for match in self.matches}:
            return False
        return all(
            match.entity_type in parts and match.name in (None, parts[match.entity_type])
            for match in self.matches
        )


def check_entity(entity: QuotaEntity) -> QuotaEntity:
    """The entity with its address in one spelling, or InvalidQuota."""
    if entity == QuotaEntity():
        raise InvalidQuota("a quota is for a user, a client id, both together, or an address")
    if entity.client_id is not None and len(entity.client_id) > MAX_CLIENT_ID:
        raise InvalidQuota(f"a client id with a quota has at most {MAX_CLIENT_ID} characters")
    if entity.ip is None:
        return entity
    if entity.user is not None or entity.client_id is not None:
        raise InvalidQuota("a quota of an address cannot be of a user or client id as well")
    if entity.ip == DEFAULT_ENTITY:
        return entity
    try:
        return entity._replace(ip=str(ip_address(entity.ip)))
    except ValueError:
        raise InvalidQuota(
            f"{entity.ip[:100]!r} is no IP address; names of hosts are not looked up"
        ) from None


def find_key(entity: QuotaEntity, name: str) -> QuotaKey:
    """The key of this name, or InvalidQuota if it is none of this kind of entity."""
    allowed = CLIENT_KEYS if entity.ip is None else IP_KEYS
    for key in allowed:
        if key == name:
            return key
    raise InvalidQuota(f"{name[:100]!r} is no quota of {entity}; there is {', '.join(allowed)}")


def check_value(key: QuotaKey, value: float) -> float:
    """As it is stored: byte and connection rates are whole numbers. Or InvalidQuota."""
    if not 0 < value < inf:
        raise InvalidQuota(f"{key} is not a number above 0")
    if not MIN_RATE <= value <= MAX_RATE:
        raise InvalidQuota(f"{key} must be from {MIN_RATE:g} to {MAX_RATE:g}")
    if key not in _WHOLE:
        return value
    whole = int(value + _EPSILON)
    most = _INT_MAX if key is QuotaKey.CONNECTION_CREATION_RATE else _LONG_MAX
    if abs(whole - value) > _EPSILON or not 0 < whole <= most:
        raise InvalidQuota(f"{key} must be a whole number, up to {most}")
    return float(whole)


def format_quota(key: QuotaKey, value: float) -> str:
    """As Kafka writes it into a znode."""
    return str(int(value)) if key in _WHOLE else str(float(value))


def is_rate(text: str) -> bool:
    """Tools write rates as decimals, with a fraction or not."""
    try:
        return MIN_RATE <= float(text) <= MAX_RATE
    except ValueError:
        return False
