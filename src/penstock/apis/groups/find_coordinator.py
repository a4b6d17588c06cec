"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transactional id.

Version 1 added transactional ids and error messages, 4 several keys at once, 6 share groups, which
are not supported. The coordinator is the leader of the partition that the key hashes to, of
`__consumer_offsets` or `__transaction_state`; the topic is created on the first request.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.apis.access import allows_resource
from penstock.apis.api import Api, Request
from penstock.apis.cluster.listener_addresses import broker_address
from penstock.apis.response_shapes import response_shape
from penstock.model.cluster import NO_BROKER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.FIND_COORDINATOR
GROUP = 0
TRANSACTION = 1
FIRST_WITH_SEVERAL_KEYS = 4


class _Result(NamedTuple):
    code: ErrorCode
    message: str | None = None
    broker: BrokerId = NO_BROKER
    host: str = ""
    port: int = -1


class _Coordinator(Protocol):
    async def ensure_topic(self) -> ErrorCode: ...

    def partition_of(self, name: str, /) -> int: ...


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    refused = {key: _find_refusal(request, services, key) for key in _keys(request)}
    topic = _TOPICS.get(_key_type(request), OFFSETS_TOPIC)
    if None in refused.values() and services.metadata.find_topic(topic) is None:
        return _create_topic_and_answer(request, services, refused, topic)
    return _answer(request, services, refused)


async def _create_topic_and_answer(
    request: Request, services: "Services", refused: dict[str, _Result | None], topic: str
) -> Any:
    code = await _coordinator(request, services).ensure_topic()
    if code is not ErrorCode.NONE:
        missing = _Result(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"the topic {topic} cannot be created: {code.name}, {code.message}",
        )
        refused = {key: refusal or missing for key, refusal in refused.items()}
    return _answer(request, services, refused)


def _keys(request: Request) -> tuple[str, ...]:
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        keys: tuple[str, ...] = request.message.coordinator_keys
        return keys
    return (request.message.key,)


def _key_type(request: Request) -> int:
    key_type: int = getattr(request.message, "key_type", GROUP)
    return key_type


def _coordinator(request: Request, services: "Services") -> _Coordinator:
    is_transaction = _key_type(request) == TRANSACTION
    return services.transactions if is_transaction else services.groups


def _find_refusal(request: Request, services: "Services", key: str) -> _Result | None:
    """None if the caller may look this key up."""
    key_type = _key_type(request)
    resource = _RESOURCES.get(key_type)
    if resource is None:
        return _Result(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not supported")
    if not allows_resource(request, services, AclOperation.DESCRIBE, resource, key):
        code = _DENIED[key_type]
        return _Result(code, code.message)
    return None


def _answer(request: Request, services: "Services", refused: dict[str, _Result | None]) -> Any:
    results = [
        (key, refused[key] or _find_leader(request, services, key)) for key in _keys(request)
    ]
    shape = response_shape(KEY, request.version)
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        coordinators = tuple(
            shape["coordinators"](key=key, **_fields(result)) for key, result in results
        )
        return shape(throttle_time=timedelta(), coordinators=coordinators)
    return shape(throttle_time=timedelta(), **_fields(results[0][1]))


def _find_leader(request: Request, services: "Services", name: str) -> _Result:
    topic = services.metadata.find_topic(_TOPICS[_key_type(request)])
    if topic is None:
        return _NOT_AVAILABLE
    leader = topic.partitions[_coordinator(request, services).partition_of(name)].leader
    broker = services.metadata.brokers.get(leader)
    address = None if broker is None else broker_address(broker, request, services)
    if address is None:
        return _NOT_AVAILABLE
    return _Result(ErrorCode.NONE, None, leader, *address)


def _fields(result: _Result) -> dict[str, Any]:
    return {
        "error_code": result.code,
        "error_message": result.message,
        "node_id": result.broker,
        "host": result.host,
        "port": result.port,
    }


_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
_RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_DENIED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NOT_AVAILABLE = _Result(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message
)

API = Api(
    key=KEY,
    versions=range(7),
    answer=answer,
    elements_share=1 / 6,  # 10,000 keys
)
