"""The principal as which this broker reaches the others, and whether they will obey it.

Nothing is sent. Invariant: a broker of a cluster whose requests to others would all be refused does
not start; otherwise it would wait for the others without end.
"""

from collections.abc import Mapping

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listeners import get_protocol_map
from penstock.model.acls import (
    CLUSTER_NAME,
    EVERYBODY,
    AclBinding,
    AclOperation,
    AclPermission,
    ResourceType,
)
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.principal import ANONYMOUS, Principal
from penstock.security.server_tls import ServerTls
from penstock.server.addresses import inter_broker_listener
from penstock.server.errors import StartRefused
from penstock.server.inter_broker_security import inter_broker_security

_OPERATIONS = (AclOperation.ALL, AclOperation.CLUSTER_ACTION)


def refuse_powerless_broker(
    config: EffectiveConfig, tls: Mapping[str, ServerTls], authorizer: AclAuthorizer
) -> None:
    """Raises StartRefused. The rules must be loaded."""
    if not config["zookeeper.connect"]:
        return
    listener = inter_broker_listener(config)
    principal = _find_principal(config, tls, listener)
    if principal is None:
        raise StartRefused(
            f"ssl.principal.mapping.rules of listener {listener} has no rule for the name of this "
            "broker's own certificate, so that other brokers would refuse it; add one"
        )
    if not _may_act_as_broker(principal, authorizer):
        raise StartRefused(
            f"{principal}, as which this broker reaches others through listener {listener}, needs "
            f"ClusterAction, and has it neither by super.users nor by a rule; add {principal} to "
            "super.users, with a semicolon in between"
        )


def _find_principal(
    config: EffectiveConfig, tls: Mapping[str, ServerTls], listener: str
) -> Principal | None:
    protocol = get_protocol_map(config.get_str("listener.security.protocol.map"))[listener]
    if protocol == "SSL":
        return tls[listener].find_own_principal()
    login = inter_broker_security(config).sasl
    return ANONYMOUS if login is None else Principal("User", login.username)


def _may_act_as_broker(principal: Principal, authorizer: AclAuthorizer) -> bool:
    """From some address at least: which ones the others see is not known here."""
    decision = authorizer.decide(
        principal, "", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    rules = authorizer.index.bindings()
    return decision.is_allowed or any(_allows(rule, principal) for rule in rules)


def _allows(rule: AclBinding, principal: Principal) -> bool:
    return (
        rule.pattern.resource_type is ResourceType.CLUSTER
        and rule.entry.permission is AclPermission.ALLOW
        and rule.entry.operation in _OPERATIONS
        and rule.entry.principal in (EVERYBODY, str(principal))
    )
