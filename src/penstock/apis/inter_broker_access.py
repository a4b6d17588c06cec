"""Requests between brokers: their listener, the permission they need, and their handlers.

Never for clients: a client could pose as a follower or as the controller (CVE-2018-1288).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.throttling import exempt
from penstock.controller.interface import AltersConfigs, Membership
from penstock.model.cluster import ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from penstock.security.principal import Caller

if TYPE_CHECKING:
    from penstock.apis.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBroker:
    """The parts of this broker that serve other brokers."""

    listener: str  # the name of the inter-broker listener
    membership: Membership  # this broker's controller, which refuses while it is not the active one
    configs: AltersConfigs  # likewise
    handle_controller_request: Callable[[ControllerRequest], None]  # or Refusal
    load_api: Callable[[PrivateKey], Api]  # the handlers of private requests


def is_authorized_broker(caller: Caller, services: "Services") -> bool:
    """Whether the caller's principal is one of brokers, on their listener. Without an authorizer,
    or where it allows everybody for want of rules, nobody's is: then only requests that pass
    `check_broker` count as those of brokers."""
    brokers = services.inter_broker
    if brokers is None or services.acls is None or caller.listener != brokers.listener:
        return False
    return services.authorizer.names_allowed(
        caller, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )


def check_broker(request: Request, services: "Services") -> InterBroker:
    """Refuse any caller that is not a broker of this cluster. Quotas do not count brokers."""
    if not allows_cluster(request, services, AclOperation.CLUSTER_ACTION):
        raise Refusal(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs CLUSTER_ACTION on the cluster",
        )
    brokers = services.inter_broker
    if brokers is None or request.caller.listener != brokers.listener:
        raise Refusal(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.key.title} is for brokers, on the inter-broker listener",
        )
    exempt(request)
    return brokers
