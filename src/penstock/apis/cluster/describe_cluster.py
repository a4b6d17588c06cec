"""DescribeCluster (key 60): the brokers, the controller and the cluster's id. Versions 0-1.

Version 1 distinguishes brokers and controllers; here every controller is a broker, so only brokers
are described. As in Kafka, brokers are shown to everybody, as in Metadata, and only the authorized
operations need DESCRIBE on the cluster: without it their bit field is 0.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import (
    OPERATIONS_NOT_ASKED,
    allows_cluster,
    authorized_operations,
)
from penstock.apis.api import Api, Request
from penstock.apis.cluster.listener_addresses import broker_address
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

_BROKERS = 1
_CONTROLLERS = 2
_FIRST_WITH_ENDPOINT_TYPE = 1


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    may_describe = allows_cluster(request, services, AclOperation.DESCRIBE, shows=True)
    refusal = _find_refusal(request)
    if refusal is not None:
        return _refuse(shape, refusal)
    brokers = _brokers(shape["brokers"], request, services)
    reachable = {broker.broker_id for broker in brokers}
    controller_id = services.metadata.controller_id
    return shape(
        throttle_time=timedelta(),
        error_code=ErrorCode.NONE,
        endpoint_type=_BROKERS,
        cluster_id=services.cluster_id,
        # Not a controller that this client cannot reach.
        controller_id=controller_id if controller_id in reachable else NO_BROKER,
        brokers=brokers,
        cluster_authorized_operations=_operations(request, services, may_describe),
    )


API = Api(key=ApiKey.DESCRIBE_CLUSTER, versions=range(2), answer=answer)


def _find_refusal(request: Request) -> tuple[ErrorCode, str] | None:
    if request.version < _FIRST_WITH_ENDPOINT_TYPE:
        return None
    endpoint_type = request.message.endpoint_type
    if endpoint_type == _BROKERS:
        return None
    if endpoint_type == _CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is a broker, and the controller is one of the brokers: ask for brokers (type 1)",
        )
    return (
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        f"there are no endpoints of type {endpoint_type}: ask for brokers (type 1)",
    )


def _refuse(shape: Shape, refusal: tuple[ErrorCode, str]) -> Any:
    code, message = refusal
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        error_message=message,
        cluster_id="",
        brokers=(),
    )


def _brokers(shape: Shape, request: Request, services: "Services") -> tuple[Any, ...]:
    reachable = (
        (node, broker_address(node, request, services))
        for node in services.metadata.brokers.values()
    )
    return tuple(
        shape(broker_id=node.id, host=address[0], port=address[1], rack=node.rack)
        for node, address in reachable
        if address is not None
    )


def _operations(request: Request, services: "Services", may_describe: bool) -> int:
    if not request.message.include_cluster_authorized_operations:
        return OPERATIONS_NOT_ASKED
    if not may_describe:
        return 0
    return authorized_operations(request, services, ResourceType.CLUSTER, CLUSTER_NAME)
