"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transactional id.

Version 1 added transactional ids and error messages, 4 several keys at once, 6 share groups, which
are not served. A group's coordinator leads its partition of the topic of offsets, which is made for
the first who asks. Transactional ids have no coordinator yet, and hear so.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.handlers.addresses import broker_address
from penstock.handlers.api import Api, Request
from penstock.handlers.shapes import response_shape
from penstock.model.cluster import NO_BROKER, OFFSETS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import wire_error
from penstock.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from penstock.handlers.services import Services

KEY = ApiKey.FIND_COORDINATOR
GROUP = 0
TRANSACTION = 1
FIRST_WITH_SEVERAL_KEYS = 4


class _Found(NamedTuple):
    code: ErrorCode
    message: str | None = None
    broker: BrokerId = NO_BROKER
    host: str = ""
    port: int = -1


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    refused = {key: _find_refusal(request, services, key) for key in _keys(request)}
    if None in refused.values() and services.cluster.find_topic(OFFSETS_TOPIC) is None:
        return _make_topic_and_answer(request, services, refused)
    return _answer(request, services, refused)


async def _make_topic_and_answer(
    request: Request, services: "Services", refused: dict[str, _Found | None]
) -> Any:
    code = await services.groups.ensure_topic()
    if code is not ErrorCode.NONE:
        missing = _Found(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"the topic {OFFSETS_TOPIC} cannot be created: {code.name}, {code.message}",
        )
        refused = {key: found or missing for key, found in refused.items()}
    return _answer(request, services, refused)


def _keys(request: Request) -> tuple[str, ...]:
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        keys: tuple[str, ...] = request.message.coordinator_keys
        return keys
    return (request.message.key,)


def _find_refusal(request: Request, services: "Services", key: str) -> _Found | None:
    """None for a group that the caller may know of."""
    key_type = getattr(request.message, "key_type", GROUP)
    resource = _RESOURCES.get(key_type)
    if resource is None:
        return _Found(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type} here")
    if not services.authorizer.allows(request.caller, Operation.DESCRIBE, resource, key):
        code = _DENIED[key_type]
        return _Found(code, code.message)
    return _NO_TRANSACTIONS if key_type == TRANSACTION else None


def _answer(request: Request, services: "Services", refused: dict[str, _Found | None]) -> Any:
    found = [(key, refused[key] or _find_leader(request, services, key)) for key in _keys(request)]
    shape = response_shape(KEY, request.version)
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        coordinators = tuple(shape["coordinators"](key=key, **_show(each)) for key, each in found)
        return shape(throttle_time=timedelta(), coordinators=coordinators)
    return shape(throttle_time=timedelta(), **_show(found[0][1]))


def _find_leader(request: Request, services: "Services", group: str) -> _Found:
    topic = services.cluster.find_topic(OFFSETS_TOPIC)
    if topic is None:
        return _NOT_AVAILABLE
    leader = topic.partitions[services.groups.partition_of(group)].leader
    broker = services.cluster.brokers.get(leader)
    address = None if broker is None else broker_address(broker, request, services)
    if address is None:
        return _NOT_AVAILABLE
    return _Found(ErrorCode.NONE, None, leader, *address)


def _show(found: _Found) -> dict[str, Any]:
    return {
        "error_code": wire_error(found.code),
        "error_message": found.message,
        "node_id": found.broker,
        "host": found.host,
        "port": found.port,
    }


_RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_DENIED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NOT_AVAILABLE = _Found(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message
)
# Not COORDINATOR_NOT_AVAILABLE: producers would wait for one until their time is up.
_NO_TRANSACTIONS = _Found(
    ErrorCode.INVALID_REQUEST,
    "transactions are not served here: produce without a transactional.id",
)

API = Api(key=KEY, versions=range(7), answer=answer, max_frame_bytes=1 << 20)
