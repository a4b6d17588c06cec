"""A listener with SASL gets the mechanisms that its settings name, or refuses the start."""

import pytest
from tests.unit.security.sasl.logins import plain_token

from penstock.config.effective_config import resolve_broker
from penstock.config.properties import parse_properties
from penstock.security.sasl.config import SaslConfigError, make_sasl_listener
from penstock.security.sasl.login import SaslListener
from penstock.security.sasl.mechanism import LoginRefused
from penstock.security.sasl.scram_users import ScramUsers
from penstock.server.jwks import TokenKeys

_LISTENERS = (
    "listeners=OUT://:1,PLAINTEXT://:2\n"
    "listener.security.protocol.map=OUT:SASL_SSL,PLAINTEXT:PLAINTEXT\n"
)
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_OAUTH = "sasl.oauthbearer"
_BEARER = (
    "sasl.enabled.mechanisms=OAUTHBEARER\nsasl.oauthbearer.expected.issuer=https://issuer\n"
    "sasl.oauthbearer.expected.audience=kafka"
)
_OWN_JAAS = "listener.name.out.scram-sha-256.sasl.jaas.config"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def make(text: str, *, listeners: str = _LISTENERS) -> SaslListener:
    config = resolve_broker(parse_properties(listeners + text, file="server.properties"))
    return make_sasl_listener(config, "OUT", ScramUsers(), TokenKeys().begin_bearer)


def test_mechanisms_and_limits_are_the_listeners_own_where_it_has_some() -> None:
    listener = make(
        "sasl.enabled.mechanisms=PLAIN\nlistener.name.out.sasl.enabled.mechanisms=SCRAM-SHA-512,"
        f'PLAIN\nlistener.name.out.plain.sasl.jaas.config={_PLAIN} user_ada="x";\n'
        "connections.max.reauth.ms=1000\n"
        "listener.name.out.scram-sha-512.connections.max.reauth.ms=2000\n"
        "sasl.server.max.receive.size=1024\nconnection.failed.authentication.delay.ms=7\n"
    )
    sessions = {name: value.max_session_ms for name, value in listener.mechanisms.items()}
    assert sessions == {"SCRAM-SHA-512": 2000, "PLAIN": 1000}
    assert (listener.max_receive_bytes, listener.failure_delay_ms) == (1024, 7)


def test_users_of_plain_are_those_of_its_login_module() -> None:
    listener = make(
        "sasl.enabled.mechanisms=PLAIN\nlistener.name.OUT.plain.sasl.jaas.config="
        f'{_PLAIN} username="broker" password="b" user_ada="x";'
    )
    assert listener.mechanisms["PLAIN"].begin().evaluate(plain_token("ada", "x")).user == "ada"
    with pytest.raises(LoginRefused):  # its own user is no user by that alone
        listener.mechanisms["PLAIN"].begin().evaluate(plain_token("broker", "b"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "GSSAPI, which is not implemented; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            "sasl.enabled.mechanisms=OAUTHBEARER",
            f"OAUTHBEARER needs {_OAUTH}.jwks.endpoint.url and {_OAUTH}.expected.issuer and ",
        ),
        (
            f"{_BEARER}\nsasl.oauthbearer.jwks.endpoint.url=http://127.0.0.1/keys",
            "http://127.0.0.1/keys: https or file is needed",
        ),
        (
            f"{_BEARER}\nsasl.oauthbearer.jwks.endpoint.url=file:///nowhere/keys",
            "file:///nowhere/keys: ",
        ),
        ("sasl.enabled.mechanisms=", "is empty, so nobody could log in"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-256,OTP", "OTP, which is not implemented"),
        (
            "sasl.enabled.mechanisms=PLAIN",
            "PLAIN has no users; set listener.name.out.plain.sasl.jaas.config=",
        ),
        (
            f"sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config={_SCRAM};",
            "PLAIN has no users",
        ),
        (
            f"sasl.enabled.mechanisms=SCRAM-SHA-256\n{_OWN_JAAS}={_PLAIN} user_a=x;",
            "and the mechanism is SCRAM-SHA-256",
        ),
    ],
)
def test_a_listener_without_a_mechanism_that_works_is_refused(text: str, why: str) -> None:
    with pytest.raises(SaslConfigError) as refused:
        make(text)
    assert why in str(refused.value)


def test_plain_without_tls_needs_a_setting_that_says_so() -> None:
    bare = _LISTENERS.replace("SASL_SSL", "SASL_PLAINTEXT")
    text = f'sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config={_PLAIN} user_ada="x";\n'
    with pytest.raises(SaslConfigError, match="PLAIN, which sends passwords as they are"):
        make(text, listeners=bare)
    assert make(f"{text}penstock.sasl.plain.without.tls=true", listeners=bare).mechanisms
