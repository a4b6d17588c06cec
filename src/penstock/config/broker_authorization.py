"""Broker settings of authorization, and how the names of super users are written."""

from penstock.config.check import ValueCheck
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

# Kafka's authorizers, which decide by the same rules and ACLs as Penstock's. Any other is refused.
AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


def parse_super_users(text: str | None) -> frozenset[str]:
    """Principals with semicolons in between, because a certificate's name has commas. ValueError
    names one that is no principal."""
    principals = frozenset(filter(None, (part.strip() for part in (text or "").split(";"))))
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(
                f"{principal!r} is no principal; write User:name, with ; between several"
            )
    return principals


def _are_principals(text: str) -> bool:
    try:
        parse_super_users(text)
    except ValueError:
        return False
    return True


PRINCIPALS = ValueCheck("principals as User:a;User:b", _are_principals)

SETTINGS: tuple[Setting, ...] = (
    broker(
        "authorizer.class.name",
        SettingKind.STRING,
        "",
        "Which authorizer decides who may do what; empty allows everything. Kafka's two stand for "
        "Penstock's, which has their rules.",
    ),
    broker(
        "super.users",
        SettingKind.STRING,
        None,
        "Principals who may do everything, as User:a;User:b. Brokers' own belong here.",
        PRINCIPALS,
    ),
    broker(
        "allow.everyone.if.no.acl.found",
        SettingKind.BOOLEAN,
        False,
        "Whether what has no rule is open to all.",
    ),
)
