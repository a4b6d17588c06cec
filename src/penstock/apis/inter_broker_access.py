"""What brokers ask each other: by which listener, with which permission, and who answers it.

Clients never get here: a follower's or a controller's word from elsewhere is a lie (CVE-2018-1288).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.controller.interface import AltersConfigs, Membership
from penstock.model.cluster import ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBroker:
    """A broker's end of it."""

    listener: str  # the name of the listener that brokers use among themselves
    membership: Membership  # the controller of this broker; it refuses while another leads
    configs: AltersConfigs  # the same
    handle_controller_request: Callable[[ControllerRequest], None]  # or Refusal
    load_api: Callable[[PrivateKey], Api]  # the handlers of private requests


def check_broker(request: Request, services: "Services") -> InterBroker:
    """Refuses whoever is not a broker of this cluster."""
    if not allows_cluster(request, services, AclOperation.CLUSTER_ACTION):
        raise Refusal(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs CLUSTER_ACTION on the cluster",
        )
    known = services.inter_broker
    if known is None or request.caller.listener != known.listener:
        raise Refusal(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.key.title} is for brokers, on the listener that they use among themselves",
        )
    return known
