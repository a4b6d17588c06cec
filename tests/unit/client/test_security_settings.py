"""A client's security settings: what asks for security is in effect, or refused."""

import pickle
from typing import Any

import pytest

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import (
    PLAINTEXT,
    CallbackLogin,
    ClientSasl,
    OidcLogin,
    SecurityProtocol,
    UnsecuredLogin,
)
from penstock.client.security.properties import parse_client_security, redact

SECRET = "s3cr3t-pa55word"
SCRAM = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
    "sasl.oauthbearer.client.id": "shop",
    "sasl.oauthbearer.client.secret": SECRET,
}


def test_settings_without_security_are_plaintext() -> None:
    assert parse_client_security({"client.id": "x", "acks": "all"}) is PLAINTEXT
    assert parse_client_security({"security.protocol": "plaintext"}) is PLAINTEXT


def test_scram_over_tls_by_librdkafkas_names() -> None:
    security = parse_client_security({**SCRAM, "ssl.ca.location": "/etc/ca.pem"})
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.sasl == ClientSasl(mechanism="SCRAM-SHA-512", username="alice", password=SECRET)
    assert security.tls is not None
    assert security.tls.trusted is not None
    assert security.tls.trusted.location == "/etc/ca.pem"
    assert security.tls.checks_hosts
    assert security.tls.verifies_brokers


def test_javas_names_say_the_same_as_librdkafkas() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="{SECRET}";',
        "ssl.keystore.location": "/etc/alice.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": SECRET,
        "ssl.endpoint.identification.algorithm": "",
    }
    rdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.keystore.location": "/etc/alice.p12",
        "ssl.keystore.password": SECRET,
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert parse_client_security(java) == parse_client_security(rdkafka)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.ca.location": "/ca.pem"}, "ssl.ca.location: not in effect .* set .* to ssl,"),
        ({"sasl.password": SECRET}, "sasl.password: not in effect .* sasl_ssl or sasl_plain"),
        ({"security.protocol": "ssl", "sasl.mechanism": "PLAIN"}, "not in effect"),
        ({"oauth_cb": str}, "oauth_cb: not in effect"),
        ({**SCRAM, "security.protocol": "sasl_plaintext", "ssl.ca.pem": "x"}, "not in effect"),
        ({"security.protocol": "tls"}, "choose from plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ({"security.protocol": ""}, "choose from"),
        ({"security.protocol": "ssl", "ssl.curves.list": "P-521"}, "ssl.curves.list: not supp"),
        ({"security.protocol": "ssl", "security.providers": "x"}, "security.providers"),
        ({"security.protocol": "ssl", "ssl.ca.pem": "a", "ssl.ca.location": "b"}, "exclude"),
        ({"security.protocol": "ssl", "ssl.key.location": "k"}, "needs ssl.certificate.location"),
        ({"security.protocol": "ssl", "ssl.certificate.pem": "c"}, "needs ssl.key.location"),
        (
            {"security.protocol": "ssl", "ssl.keystore.location": "s", "ssl.key.location": "k"},
            "remove it, or ssl.key.location",
        ),
        ({"security.protocol": "ssl", "ssl.key.password": SECRET}, "there is no key"),
        ({"security.protocol": "ssl", "ssl.keystore.password": SECRET}, "set ssl.keystore.loc"),
        ({"security.protocol": "ssl", "ssl.truststore.password": SECRET}, "set ssl.truststore"),
        ({"security.protocol": "ssl", "ssl.enabled.protocols": "TLSv1.1"}, "not secure"),
        ({"security.protocol": "ssl", "ssl.truststore.type": "BCFKS"}, "PEM or PKCS12"),
        (
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "ldaps"},
            "write https, or none",
        ),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": "perhaps"},
            "true or false",
        ),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism is not set"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported: choose from PLAIN"),
        ({**SCRAM, "sasl.mechanisms": "PLAIN"}, "contradict"),
        ({**SCRAM, "sasl.username": None}, "sasl.username is not set"),
        ({**SCRAM, "sasl.password": None}, "sasl.password is not set"),
        ({**SCRAM, "sasl.password": f"{SECRET}\0"}, "NUL"),
        ({**SCRAM, "sasl.password": 17}, "sasl.password is a int"),
        ({**SCRAM, "sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name"),
        ({**SCRAM, "sasl.oauthbearer.client.secret": SECRET}, "client.secret: not supported"),
        (
            {**SCRAM, "sasl.jaas.config": f'{PLAIN_MODULE} required password="{SECRET}";'},
            "is for PLAIN",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
            "method=oidc .* or oauth_cb",
        ),
        ({**OIDC, "sasl.oauthbearer.client.id": None}, "client.id is not set"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "https URL"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://example.org/t"}, "https URL"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://[bad/t"}, "https URL"),
        (
            {**OIDC, "sasl.oauthbearer.token.endpoint.url": f"https://a:{SECRET}@example.org/t"},
            "has a user",
        ),
        ({**OIDC, "oauth_cb": str}, "exclude each other"),
        ({**OIDC, "sasl.login.callback.handler.class": "com.example.Evil"}, "not loaded"),
    ],
)
def test_what_would_not_be_in_effect_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidClientConfig, match=message) as refused:
        parse_client_security(settings)
    assert SECRET not in str(refused.value)


def test_javas_tuning_of_logins_is_left_to_our_client() -> None:
    settings = {**SCRAM, "sasl.login.refresh.window.factor": "0.8", "ssl.protocol": "TLSv1.3"}
    assert parse_client_security(settings) == parse_client_security(SCRAM)


def test_tokens_come_from_a_provider() -> None:
    sasl = parse_client_security({**OIDC, "sasl.oauthbearer.extensions": "tenant=a"}).sasl
    assert sasl is not None
    assert isinstance(sasl.oauth, OidcLogin)
    assert (sasl.oauth.client_id, sasl.oauth.client_secret) == ("shop", SECRET)
    assert sasl.extensions == (("tenant", "a"),)


def test_tokens_come_from_a_provider_by_javas_names() -> None:
    jaas = f'{OAUTH_MODULE} required clientId="shop" clientSecret="{SECRET}" extension_tenant="a";'
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": jaas,
    }
    rdkafka = {**OIDC, "sasl.oauthbearer.extensions": "tenant=a"}
    assert parse_client_security(java) == parse_client_security(rdkafka)


def test_tokens_come_from_a_function_or_are_unsecured() -> None:
    base = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
    called = parse_client_security({**base, "oauth_cb": lambda config: (config, 1.0)}).sasl
    assert called is not None
    assert isinstance(called.oauth, CallbackLogin)
    unsecured = parse_client_security(
        {
            **base,
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=alice scope=a,b lifeSeconds=60",
        }
    ).sasl
    assert unsecured is not None
    assert unsecured.oauth == UnsecuredLogin(principal="alice", scopes=("a", "b"), lifetime_s=60)


def test_no_repr_shows_a_secret() -> None:
    tls = {"ssl.key.pem": SECRET, "ssl.certificate.pem": "c", "ssl.key.password": SECRET}
    for settings in ({**SCRAM, **tls}, OIDC):
        assert SECRET not in repr(parse_client_security(settings))
        shown = redact(settings)
        assert SECRET not in repr(shown)
        assert shown.keys() == settings.keys()


def test_security_goes_to_another_process() -> None:
    security = parse_client_security({**SCRAM, "ssl.ca.location": "/etc/ca.pem"})
    assert pickle.loads(pickle.dumps(security)) == security
