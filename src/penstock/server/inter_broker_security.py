"""How this broker logs in at the others: TLS and SASL of the inter-broker listener, as a client.

The keys are the listener's own. Kafka's names: sasl.mechanism.inter.broker.protocol, and the user
in listener.name.<listener>.<mechanism>.sasl.jaas.config. Invariant: a broker whose login would not
work does not start.
"""

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import ClientSecurity
from penstock.client.security.properties import parse_client_security
from penstock.client.security.tls_context import TlsContexts
from penstock.config.effective_config import EffectiveConfig
from penstock.config.jaas import JaasError, parse_jaas
from penstock.config.listener_config import ListenerConfig
from penstock.server.addresses import inter_broker_listener
from penstock.server.errors import StartRefused

_TLS_TEXTS = (
    *("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
    *("ssl.key.password", "ssl.truststore.location", "ssl.truststore.certificates"),
)
_JAAS = "sasl.jaas.config"


def inter_broker_security(config: EffectiveConfig) -> ClientSecurity:
    """Raises StartRefused."""
    listener = inter_broker_listener(config)
    own = ListenerConfig(config, listener)
    settings: dict[str, str] = {"security.protocol": own.protocol}
    if own.protocol.endswith("SSL"):
        settings |= _tls_settings(own)
    try:
        if own.protocol.startswith("SASL"):
            settings |= _sasl_settings(config, listener)
        security = parse_client_security(settings)
        if security.tls is not None:
            TlsContexts(security.tls).get()  # its files can be used
    except (InvalidClientConfig, JaasError) as error:
        raise StartRefused(
            f"brokers cannot log in at each other on listener {listener}: {error}"
        ) from None
    return security


def _tls_settings(own: ListenerConfig) -> dict[str, str]:
    """Cipher suites are the server's to choose."""
    settings = {name: value for name in _TLS_TEXTS if (value := own.find_str(name)) is not None}
    for store in ("ssl.keystore", "ssl.truststore"):
        password = own.find_str(f"{store}.password")
        if f"{store}.location" in settings and password is not None:
            settings[f"{store}.password"] = password
    settings["ssl.enabled.protocols"] = ",".join(own.get_list("ssl.enabled.protocols"))
    algorithm = own.find_str("ssl.endpoint.identification.algorithm") or ""
    return {**settings, "ssl.endpoint.identification.algorithm": algorithm}


def _sasl_settings(config: EffectiveConfig, listener: str) -> dict[str, str]:
    mechanism = config.get_str("sasl.mechanism.inter.broker.protocol").upper()
    text, name = _find_jaas(config, listener, mechanism)
    if text is None:
        raise InvalidClientConfig(
            f"{name} is not set; it names this broker's user: ...LoginModule required "
            'username="NAME" password="PASSWORD";'
        )
    entry = parse_jaas(text)
    entry.check_mechanism(mechanism)
    if mechanism == "OAUTHBEARER":
        raise InvalidClientConfig(
            "OAUTHBEARER is not supported among brokers: use SCRAM-SHA-512 or PLAIN, or "
            "certificates on an SSL listener"
        )
    # Options such as user_alice are the server's, which knows users by them.
    user = {
        f"sasl.{option}": entry.options[option]
        for option in ("username", "password")
        if option in entry.options
    }
    if len(user) < 2:
        raise InvalidClientConfig(f"{name} has no username and password of this broker itself")
    return {"sasl.mechanism": mechanism, **user}


def _find_jaas(config: EffectiveConfig, listener: str, mechanism: str) -> tuple[str | None, str]:
    """The listener's own entry of this mechanism, else everybody's; and its name."""
    name = f"listener.name.{listener}.{mechanism}.{_JAAS}".lower()
    for setting, effective in config.by_listener.items():
        if setting.lower() == name and effective.value:
            return str(effective.value), name
    everybodys = config[_JAAS]
    return (str(everybodys) if everybodys else None), name
