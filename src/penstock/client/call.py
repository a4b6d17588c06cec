"""Requests before their version is negotiated: field values by name, composed into a message later.

Fields that a version lacks are left out, so `versions` must start where everything that matters
exists.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import get_request_schema
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.schemas import REQUIRED, FieldShape, WireMessage, describe_fields

Fields = Mapping[str, Any]
# Name, nested class, whether it is an array, and the value of a field that is not given.
Plan = list[tuple[str, type[WireMessage] | None, bool, Any]]

_PLANS: dict[type[WireMessage], Plan] = {}  # one per message class, so bounded


class Call(NamedTuple):
    api_key: ApiKey
    versions: range  # supported by this client; consecutive
    fields: Fields

    def compose(self, version: int) -> Any:
        return compose(get_request_schema(self.api_key, version), self.fields)


class LeanCall(NamedTuple):
    """A request that brokers send so often that it is encoded and decoded by position."""

    api_key: ApiKey
    versions: range
    encode: Callable[[int], bytes]  # the body, by version
    decode: Callable[[int, memoryview], Any]


class PrivateCall(NamedTuple):
    """A request between Penstock brokers, in a version that both sides support."""

    api_key: PrivateKey
    version: int
    body: bytes


def compose(entity: type[WireMessage], values: Fields) -> Any:
    """Build a message of this class; nested structs are mappings, arrays are sequences."""
    made = {}
    for name, nested, is_array, default in _plan(entity):
        value = values.get(name, default)
        if value is REQUIRED:
            continue  # the class has a default, or raises with the field's name
        if nested is not None and value is not None:
            value = _compose_nested(nested, value, is_array)
        elif is_array and value is not None:
            value = tuple(value)
        made[name] = value
    return entity(**made)


def _compose_nested(entity: type[WireMessage], value: Any, is_array: bool) -> Any:
    if not is_array:
        return compose(entity, value)
    items: Sequence[Fields] = value
    return tuple([compose(entity, item) for item in items])


def _plan(entity: type[WireMessage]) -> Plan:
    plan = _PLANS.get(entity)
    if plan is None:
        plan = _PLANS[entity] = _make_plan(entity)
    return plan


def _make_plan(entity: type[WireMessage]) -> Plan:
    plan: Plan = []
    for shape in describe_fields(entity):
        default = _nothing(shape) if shape.default is REQUIRED else REQUIRED
        plan.append((shape.name, shape.entity, shape.is_array, default))
    return plan


def _nothing(shape: FieldShape) -> Any:
    if shape.is_nullable:
        return None
    if shape.is_array:
        return ()
    return False if shape.kafka_type == "bool" else REQUIRED
