"""The SASL of a listener from the broker's settings; a listener that would be open is refused.

The passwords of PLAIN stay in memory and are in no error.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.config.jaas import LOGIN_MODULES, JaasError, parse_jaas
from penstock.config.listener_config import ListenerConfig
from penstock.config.setting import Value
from penstock.protocol.scram import ScramMechanism
from penstock.security.sasl.bearer_tokens import TokenRules
from penstock.security.sasl.login import SaslListener, SaslMechanism
from penstock.security.sasl.mechanism import MechanismExchange
from penstock.security.sasl.plain import PlainExchange, find_plain_users
from penstock.security.sasl.scram import ScramExchange
from penstock.security.sasl.scram_users import ScramUsers

_PLAIN = "PLAIN"
_SCRAM = {mechanism.value: mechanism for mechanism in ScramMechanism}
_BEARER = "OAUTHBEARER"
SERVED_MECHANISMS = (_PLAIN, *_SCRAM, _BEARER)
Begin = Callable[[], MechanismExchange]
_JAAS = "sasl.jaas.config"


class SaslConfigError(ValueError):
    """The listener cannot be served as it is configured; the message says what to change."""


class BearerConfig(NamedTuple):
    listener: str
    jwks_url: str
    refresh_ms: int
    rules: TokenRules


def make_sasl_listener(
    config: EffectiveConfig,
    listener: str,
    users: ScramUsers,
    begin_bearer: Callable[[BearerConfig], Begin],
) -> SaslListener:
    """Raises SaslConfigError, as `begin_bearer` may."""
    own = ListenerConfig(config, listener)
    enabled = tuple(dict.fromkeys(name.upper() for name in own.get_list("sasl.enabled.mechanisms")))
    _check_mechanisms(own, enabled)
    return SaslListener(
        listener=listener,
        mechanisms={name: _make_mechanism(own, name, users, begin_bearer) for name in enabled},
        max_receive_bytes=own.get_int("sasl.server.max.receive.size"),
        failure_delay_ms=config.get_int("connection.failed.authentication.delay.ms"),
    )


def _check_mechanisms(own: ListenerConfig, enabled: tuple[str, ...]) -> None:
    setting = f"listener {own.listener}: sasl.enabled.mechanisms"
    served = ", ".join(SERVED_MECHANISMS)
    if not enabled:
        raise SaslConfigError(f"{setting} is empty, so nobody could log in; there are {served}")
    unknown = [name for name in enabled if name not in SERVED_MECHANISMS]
    if unknown:
        raise SaslConfigError(
            f"{setting} has {', '.join(unknown)[:200]}, which is not implemented; there are "
            f"{served}"
        )
    is_bare = own.protocol == "SASL_PLAINTEXT"
    if _BEARER in enabled and is_bare:
        raise SaslConfigError(
            f"{setting} has OAUTHBEARER, whose tokens let in whoever reads them, and the listener "
            "has no TLS; use SASL_SSL"
        )
    if _PLAIN in enabled and is_bare and not own.get_bool("penstock.sasl.plain.without.tls"):
        raise SaslConfigError(
            f"{setting} has PLAIN, which sends passwords as they are, and the listener has no TLS; "
            "use SASL_SSL, or SCRAM-SHA-512, or accept that everybody on the way reads them with "
            "penstock.sasl.plain.without.tls=true"
        )


def _make_mechanism(
    own: ListenerConfig,
    name: str,
    users: ScramUsers,
    begin_bearer: Callable[[BearerConfig], Begin],
) -> SaslMechanism:
    options = _read_options(own, name)
    begin: Begin
    if name == _PLAIN:
        plain_users = find_plain_users(options)
        if not plain_users:
            raise SaslConfigError(
                f"listener {own.listener}: PLAIN has no users; set {_jaas_name(own, name)}="
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'user_NAME="PASSWORD";'
            )
        begin = partial(PlainExchange, plain_users)
    elif name == _BEARER:
        if options:
            raise SaslConfigError(
                f"{_jaas_name(own, name)}: its options are not in effect: unsecured tokens are "
                "never accepted; remove them"
            )
        begin = begin_bearer(_read_bearer(own))
    else:
        begin = partial(ScramExchange, _SCRAM[name], users)
    own_ms = _find_own(own, name, "connections.max.reauth.ms")
    session_ms = own.get_int("connections.max.reauth.ms") if own_ms is None else own_ms
    assert isinstance(session_ms, int), "the setting is a number"
    return SaslMechanism(begin, session_ms)


def _read_bearer(own: ListenerConfig) -> BearerConfig:
    url = own.find_str("sasl.oauthbearer.jwks.endpoint.url")
    issuer = own.find_str("sasl.oauthbearer.expected.issuer")
    audiences = own.get_list("sasl.oauthbearer.expected.audience")
    algorithms = own.get_list("penstock.sasl.oauthbearer.algorithms")
    required = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": issuer,
        "sasl.oauthbearer.expected.audience": audiences,
        "penstock.sasl.oauthbearer.algorithms": algorithms,
    }
    missing = [name for name, value in required.items() if not value]
    if url is None or issuer is None or missing:
        raise SaslConfigError(
            f"listener {own.listener}: OAUTHBEARER needs {' and '.join(missing)}: without them "
            "tokens of anybody would be accepted"
        )
    return BearerConfig(
        own.listener,
        url,
        own.get_int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        TokenRules(
            issuer=issuer,
            audiences=audiences,
            algorithms=algorithms,
            user_claim=own.get_str("sasl.oauthbearer.sub.claim.name"),
            clock_skew_s=own.get_int("sasl.oauthbearer.clock.skew.seconds"),
        ),
    )


def _read_options(own: ListenerConfig, mechanism: str) -> Mapping[str, str]:
    """Of the mechanism's login module; none without one."""
    own_text = _find_own(own, mechanism, _JAAS)
    text = own_text or own.find_str("sasl.jaas.config")
    if not text:
        return {}
    assert isinstance(text, str), "the setting is a text"
    try:
        entry = parse_jaas(text)
        if own_text:
            entry.check_mechanism(mechanism)
    except JaasError as error:
        raise SaslConfigError(f"{_jaas_name(own, mechanism)}: {error}") from None
    return entry.options if mechanism in LOGIN_MODULES[entry.module] else {}


def _find_own(own: ListenerConfig, mechanism: str, setting: str) -> Value:
    """The mechanism's own value on this listener; None: it has none."""
    wanted = f"{mechanism}.{setting}".lower()
    for name in own.own_names():
        if name.lower() == wanted:
            effective = own.find_own(name)
            return None if effective is None else effective.value
    return None


def _jaas_name(own: ListenerConfig, mechanism: str) -> str:
    return f"listener.name.{own.listener}.{mechanism}.{_JAAS}".lower()
