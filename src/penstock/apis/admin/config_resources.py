"""The resources that settings belong to: who may access them, and which this broker answers for.

Shared by DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.
"""

import re
from typing import TYPE_CHECKING

from penstock.apis.access import allows_resource
from penstock.apis.api import Request
from penstock.model.admin import ConfigResourceType
from penstock.model.errors import ErrorCode, Refusal
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services


def get_resource(code: int) -> ConfigResourceType:
    try:
        return ConfigResourceType(code)
    except ValueError:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"there are no resources of type {code}; topics are type 2, brokers type 4, groups "
            "type 32",
        ) from None


def check_allowed(
    request: Request,
    services: "Services",
    operation: AclOperation,
    resource: ConfigResourceType,
    name: str,
) -> None:
    """Refuse a caller that may not do this to the resource's settings."""
    kind, code = _PERMISSIONS.get(resource, _ON_CLUSTER)
    on = CLUSTER_NAME if kind is ResourceType.CLUSTER else name
    if not allows_resource(request, services, operation, kind, on):
        raise Refusal(
            code,
            f"{request.caller.principal} needs {operation.name} on "
            f"{'the cluster' if kind is ResourceType.CLUSTER else f'{kind.name.lower()} {name!r}'}",
        )


def check_this_broker(name: str, services: "Services", *, has_defaults: bool = True) -> None:
    """A broker has only its own settings: clients send these requests to the broker itself.
    `has_defaults`: an empty name, which the caller looks at, stands for all brokers."""
    if name == str(services.broker_id):
        return
    if re.fullmatch(r"-?[0-9]{1,10}", name) is None:
        message = f"a broker is named by its number, which {name!r} is not"
    else:
        message = (
            f"this is broker {services.broker_id}; send requests about broker {name} to that broker"
        )
        if has_defaults:
            message += ", or leave the name empty for the defaults of all brokers"
    raise Refusal(ErrorCode.INVALID_REQUEST, message)


def refuse_unsupported(resource: ConfigResourceType) -> Refusal:
    kind = resource.name.lower().replace("_", " ")
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"there are no {kind} settings here; only topics, brokers and groups have some",
    )


_ON_CLUSTER = (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_PERMISSIONS = {
    ConfigResourceType.TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ConfigResourceType.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
