"""FindCoordinator (key 10), versions 0-4: which broker coordinates a group or a transactional id.

Version 1 added transactional ids and error messages, 4 several keys at once. This broker runs no
coordinator, and says so. It is served all the same: librdkafka sends lz4 only to those who have it.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.handlers.api import Api, Request
from penstock.handlers.shapes import response_shape
from penstock.model.cluster import NO_BROKER
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


class _Kind(NamedTuple):
    resource: ResourceType
    denied: ErrorCode
    absent: ErrorCode
    message: str


_KINDS = {
    GROUP: _Kind(
        ResourceType.GROUP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "consumer groups are not served here: assign partitions and keep offsets yourself",
    ),
    # Not COORDINATOR_NOT_AVAILABLE: producers would wait for one until their time is up.
    TRANSACTION: _Kind(
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        "transactions are not served here: produce without a transactional.id",
    ),
}


def answer(request: Request, services: "Services") -> Any:
    message = request.message
    shape = response_shape(KEY, request.version)
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        coordinators = tuple(
            shape["coordinators"](key=key, **_answer_key(request, services, key))
            for key in message.coordinator_keys
        )
        return shape(throttle_time=timedelta(), coordinators=coordinators)
    return shape(throttle_time=timedelta(), **_answer_key(request, services, message.key))


def _answer_key(request: Request, services: "Services", key: str) -> dict[str, Any]:
    code, text = _find_error(request, services, key)
    return {
        "error_code": wire_error(code),
        "error_message": text,
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }


def _find_error(request: Request, services: "Services", key: str) -> tuple[ErrorCode, str]:
    key_type = getattr(request.message, "key_type", GROUP)
    kind = _KINDS.get(key_type)
    if kind is None:
        return ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}"
    if not services.authorizer.allows(request.caller, Operation.DESCRIBE, kind.resource, key):
        return kind.denied, kind.denied.message
    return kind.absent, kind.message


API = Api(key=KEY, versions=range(5), answer=answer, max_frame_bytes=1 << 20)
