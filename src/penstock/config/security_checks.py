"""Refuses security that is configured and would not be in effect: TLS and SASL, ACLs, policies.

Nothing is secured here, and no file is read: keys, certificates and the mechanisms of SASL are
checked by `security`.
Invariant: no broker serves plaintext on a listener that asks for more, or everybody where an
authorizer is named; none talks plaintext to ZooKeeper or leaves znodes open where the config asks
for more. Settings that nothing active depends on are left alone.
"""

from collections.abc import Iterator, Set

from penstock.config.broker_authorization import AUTHORIZERS, parse_super_users
from penstock.config.cross_checks import ConfigFinding, Values
from penstock.config.listeners import get_listeners, get_protocol_map
from penstock.config.registry import BROKER_SETTINGS, find_listener_setting
from penstock.config.setting import Setting
from penstock.config.zookeeper_security import zookeeper_findings

_PLAINTEXT = "PLAINTEXT"
_AUTHORIZER = "authorizer.class.name"
_INTER_BROKER = "security.inter.broker.protocol"
_FAMILIES = {"SSL": ("ssl.",), "SASL_PLAINTEXT": ("sasl.",), "SASL_SSL": ("ssl.", "sasl.")}
_SUPER_USERS = "super.users"
_ANONYMOUS = "User:ANONYMOUS"
# Classes that may refuse what a client asks for -> what happens without them.
_POLICIES = {
    "create.topic.policy.class.name": "clients create any topic",
    "alter.config.policy.class.name": "clients change any setting",
}
# What they choose exists in Java only, and no client gets in because they are not read.
_JAVA_ONLY = (
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
)


def security_conflicts(values: Values, explicit: Set[str]) -> list[ConfigFinding]:
    """Security settings that change nothing although an active listener, the authorizer, the
    connection to ZooKeeper or a policy needs them.

    `explicit` are the names that the user set.
    """
    secured = secured_listeners(values)
    return [
        *_dependent_findings(secured, explicit),
        *_stray_findings(values, explicit),
        *_repeated_findings(explicit),
        *_authorizer_findings(values),
        *zookeeper_findings(values, explicit),
        *_policy_findings(values),
    ]


def secured_listeners(values: Values) -> dict[str, str]:
    """Listeners that ask for more than plaintext -> their security protocol."""
    protocols = get_protocol_map(values["listener.security.protocol.map"])
    names = [listener.name for listener in get_listeners(values["listeners"])]
    return {
        name: protocols[name] for name in names if protocols.get(name, _PLAINTEXT) != _PLAINTEXT
    }


def _dependent_findings(secured: dict[str, str], explicit: Set[str]) -> Iterator[ConfigFinding]:
    for name in sorted(explicit):
        setting = _get_setting(name)
        dependents = [
            listener
            for listener, protocol in secured.items()
            if setting.name.startswith(_FAMILIES[protocol]) and _is_read_by(listener, name)
        ]
        if dependents and not setting.active and not _is_harmless(setting.name):
            yield ConfigFinding(
                name,
                f"is not in effect, and listener {', '.join(dependents)} depends on it; remove it "
                "together with that listener",
            )


def _is_harmless(name: str) -> bool:
    """Whether nobody gets in because it is not read. Kerberos itself is refused as a mechanism."""
    return name in _JAVA_ONLY or name.startswith("sasl.kerberos.")


def _is_read_by(listener: str, name: str) -> bool:
    """Whether a setting is the listener's own or everybody's."""
    if not name.startswith("listener.name."):
        return True
    return name.lower().startswith(f"listener.name.{listener.lower()}.")


def _stray_findings(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    """Security for a listener that is not there was probably meant for another one."""
    listeners = [listener.name for listener in get_listeners(values["listeners"])]
    for name in sorted(explicit):
        if not name.startswith("listener.name.") or not _is_security(_get_setting(name)):
            continue
        if not any(_is_read_by(listener, name) for listener in listeners):
            yield ConfigFinding(
                name,
                f"names no listener of listeners ({', '.join(listeners)}); correct or remove it",
            )


def _repeated_findings(explicit: Set[str]) -> Iterator[ConfigFinding]:
    """Names of listeners are compared in any case, so only one of these could be in effect."""
    spelled: dict[str, str] = {}
    for name in sorted(explicit):
        if not name.startswith("listener.name."):
            continue
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            yield ConfigFinding(name, f"is set as {other}, too; remove one of them")


def _is_security(setting: Setting) -> bool:
    return setting.name.startswith(_FAMILIES["SASL_SSL"])


def _get_setting(name: str) -> Setting:
    setting = BROKER_SETTINGS.get(name) or find_listener_setting(name)
    assert setting is not None, f"{name} was parsed, but is not declared"
    return setting


def _authorizer_findings(values: Values) -> Iterator[ConfigFinding]:
    name = values[_AUTHORIZER]
    if not name:
        return
    if name not in AUTHORIZERS:
        yield ConfigFinding(
            _AUTHORIZER,
            f"{name} cannot be loaded, and without it everybody may do everything; set it to "
            f"{' or '.join(AUTHORIZERS)}, which both stand for Penstock's own",
        )
    is_clustered = values["zookeeper.connect"] is not None
    if is_clustered and not parse_super_users(values[_SUPER_USERS]):
        yield ConfigFinding(
            _SUPER_USERS,
            f"names nobody, and {_AUTHORIZER} is set: the brokers' own requests would be refused; "
            "name the principal of the brokers",
        )
    elif is_clustered and _are_brokers_anonymous(values):
        yield ConfigFinding(
            _SUPER_USERS,
            f"lacks {_ANONYMOUS}, as which brokers reach each other through a PLAINTEXT listener, "
            f"so their requests would be refused; add {_ANONYMOUS}, who then may do everything on "
            "every PLAINTEXT listener, or let the brokers authenticate",
        )


def _are_brokers_anonymous(values: Values) -> bool:
    """Whether no request between brokers would be allowed."""
    protocols = get_protocol_map(values["listener.security.protocol.map"])
    name = values["inter.broker.listener.name"]
    protocol = protocols.get(name.upper(), _PLAINTEXT) if name else values[_INTER_BROKER].upper()
    return protocol == _PLAINTEXT and _ANONYMOUS not in parse_super_users(values[_SUPER_USERS])


def _policy_findings(values: Values) -> Iterator[ConfigFinding]:
    for name, consequence in _POLICIES.items():
        if values[name] is not None:
            yield ConfigFinding(
                name,
                f"{values[name]} is not in effect: Java classes cannot be loaded, and "
                f"{consequence}; remove it if that is acceptable",
            )
