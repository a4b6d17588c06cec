"""ListConfigResources (key 74), versions 0-1: the resources that have, or may have, settings.

Version 0 lists client metrics subscriptions only, and there are none (KIP-714). Version 1 names the
types; none means every type (KIP-1142). Groups are listed once they have settings of their own.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.model.admin import ConfigResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    code, resources = _find(request, services)
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        config_resources=tuple(
            shape["config_resources"](resource_name=name, resource_type=resource.value)
            for resource, name in resources
        ),
    )


API = Api(key=ApiKey.LIST_CONFIG_RESOURCES, versions=range(2), answer=answer)


def _find(
    request: Request, services: "Services"
) -> tuple[ErrorCode, list[tuple[ConfigResourceType, str]]]:
    if not allows_cluster(request, services, AclOperation.DESCRIBE_CONFIGS):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, []
    only_metrics = (ConfigResourceType.CLIENT_METRICS,)
    codes = getattr(request.message, "resource_types", only_metrics) or tuple(ConfigResourceType)
    if not set(codes) <= set(ConfigResourceType):
        return ErrorCode.UNSUPPORTED_VERSION, []
    wanted = [resource for resource in ConfigResourceType if resource in codes]
    named = [(resource, name) for resource in wanted for name in _names(resource, services)]
    return ErrorCode.NONE, named


def _names(resource: ConfigResourceType, services: "Services") -> Iterable[str]:
    metadata = services.metadata
    match resource:
        case ConfigResourceType.TOPIC:
            return sorted(metadata.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return map(str, sorted(metadata.brokers))
        case ConfigResourceType.CLIENT_METRICS:
            return ()
        case ConfigResourceType.GROUP:
            return sorted(metadata.group_configs)
