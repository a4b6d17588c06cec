"""A broker whose requests to the others would all be refused does not start."""

from collections.abc import Mapping

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.model.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig
from penstock.server.errors import StartRefused
from penstock.server.listener_tls import load_listener_tls
from penstock.server.own_principal import refuse_powerless_broker
from penstock.testing.security_kit import Security, SecurityKit

CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
OTHERS = {"super.users": "User:root"}


def check(
    security: Security,
    own: Mapping[str, str],
    *,
    principal: str = "",
    operation: AclOperation = AclOperation.CLUSTER_ACTION,
    permission: AclPermission = AclPermission.ALLOW,
) -> None:
    """With a rule for the principal, if one is named."""
    kit = SecurityKit(security)
    settings = {
        **kit.broker_config,
        "listeners": f"{kit.protocol}://127.0.0.1:0",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "zookeeper.connect": "h:1",
        **own,
    }
    config = resolve_broker(RawConfig.from_mapping(settings, where="test"))
    authorizer = AclAuthorizer(AuthorizerConfig.from_broker(config))
    if principal:
        entry = AccessControlEntry(principal, "10.0.0.0/8", operation, permission)
        authorizer.replace(CLUSTER, [entry])
    refuse_powerless_broker(config, load_listener_tls(config), authorizer)


@pytest.mark.parametrize(
    ("security", "own", "principal"),
    [
        ("tls", OTHERS, "User:CN=broker"),
        ("sasl_ssl", OTHERS, "User:broker"),
        ("tls", {**OTHERS, "ssl.client.auth": "none"}, "User:ANONYMOUS"),
        (
            "tls",
            {**OTHERS, "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"},
            "User:BROKER",
        ),
    ],
)
def test_a_broker_without_cluster_action_is_told_its_principal(
    security: Security, own: Mapping[str, str], principal: str
) -> None:
    with pytest.raises(StartRefused, match=f"^{principal}, as which .* add {principal} to super"):
        check(security, own)
    check(security, {**own, "super.users": f"User:root;{principal}"})
    check(security, own, principal=principal)
    check(security, own, principal="User:*", operation=AclOperation.ALL)
    for insufficient in (
        {"principal": principal, "operation": AclOperation.DESCRIBE},
        {"principal": principal, "permission": AclPermission.DENY},
        {"principal": "User:other"},
    ):
        with pytest.raises(StartRefused):
            check(security, own, **insufficient)


def test_a_certificate_that_no_rule_maps_is_refused() -> None:
    rules = {**OTHERS, "ssl.principal.mapping.rules": "RULE:^CN=(.*),OU=.*$/$1/"}
    with pytest.raises(StartRefused, match=r"no rule for the name of this broker's own"):
        check("tls", rules)


def test_a_single_broker_has_nobody_to_reach() -> None:
    check("tls", {**OTHERS, "zookeeper.connect": ""})
