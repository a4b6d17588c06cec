"""TLS, login and ACLs of the connection to ZooKeeper: what settings mean, and what is refused."""

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.jaas import JaasError, parse_jaas
from penstock.config.properties import parse_properties
from penstock.config.raw_config import ConfigError
from penstock.config.zookeeper_security import (
    StoreFile,
    ZooKeeperLogin,
    ZooKeeperSecurity,
    ZooKeeperTls,
)
from penstock.config.zookeeper_settings import parse_zookeeper_security

_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_JAAS = f'penstock.zookeeper.sasl.jaas.config={_MODULE} required username="b" password="p";'
_CONNECT = "zookeeper.connect=zk:2182"
_NO_TLS = f"{_CONNECT}\nzookeeper.ssl.client.enable=false"
_TLS = f"{_CONNECT}\nzookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/trust"


def _security(text: str) -> ZooKeeperSecurity:
    config = resolve_broker(parse_properties(text, file="server.properties"))
    assert config.warnings == ()
    return ZooKeeperSecurity.from_settings(config)


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        _security(text)
    return [line for line in str(refused.value).splitlines() if "zookeeper" in line]


def test_nothing_is_secure_by_default() -> None:
    assert _security(_CONNECT) == ZooKeeperSecurity(tls=None, login=None, sets_acls=False)


def test_settings_of_a_kafka_broker_are_read() -> None:
    security = _security(
        f"{_TLS}\nzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        "zookeeper.ssl.truststore.password=t\nzookeeper.ssl.truststore.type=JKS\n"
        "zookeeper.ssl.keystore.location=/key\nzookeeper.ssl.keystore.password=k\n"
        "zookeeper.ssl.keystore.type=PKCS12\nzookeeper.ssl.enabled.protocols=TLSv1.3\n"
        "zookeeper.ssl.endpoint.identification.algorithm=\nzookeeper.set.acl=true"
    )
    tls = ZooKeeperTls(StoreFile("/trust", "t"), StoreFile("/key", "k"), ("TLSv1.3",), False)
    assert security == ZooKeeperSecurity(tls=tls, login=None, sets_acls=True)


def test_host_names_are_checked_and_both_versions_allowed_by_default() -> None:
    tls = _security(_TLS).tls
    assert tls is not None
    assert tls.checks_hosts
    assert tls.versions == ("TLSv1.2", "TLSv1.3")


def test_login_is_that_of_zookeepers_module() -> None:
    assert _security(f"{_CONNECT}\n{_JAAS}").login == ZooKeeperLogin("b", "p")


def test_no_secret_is_in_a_repr() -> None:
    login = _JAAS.replace('"p"', '"hidden"')
    shown = repr(
        _security(
            f"{_TLS}\n{login}\n"
            "zookeeper.ssl.keystore.location=/key\nzookeeper.ssl.keystore.password=hidden"
        )
    )
    assert "/key" in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("zookeeper.set.acl=true", "zookeeper.set.acl", "without zookeeper.connect"),
        (_JAAS, "penstock.zookeeper.sasl.jaas.config", "without zookeeper.connect"),
        (f"{_CONNECT}\nzookeeper.set.acl=true", "zookeeper.set.acl", "would not know who creates"),
        (f"{_TLS}\nzookeeper.set.acl=true", "zookeeper.set.acl", "would not know who creates"),
        (
            f"{_NO_TLS}\nzookeeper.ssl.keystore.location=/key\nzookeeper.set.acl=true",
            "zookeeper.set.acl",
            "would not know who creates",
        ),
        (
            f"{_CONNECT}\nzookeeper.ssl.truststore.location=/trust",
            "zookeeper.ssl.truststore.location",
            "is plaintext: set zookeeper.ssl.client.enable=true, or false",
        ),
        (
            f"{_CONNECT}\nzookeeper.ssl.client.enable=true",
            "zookeeper.ssl.client.enable",
            "needs zookeeper.ssl.truststore.location",
        ),
        (
            f"{_TLS}\nzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNIO",
            "zookeeper.clientCnxnSocket",
            "has no TLS",
        ),
        (f"{_TLS}\nzookeeper.ssl.crl.enable=true", "zookeeper.ssl.crl.enable", "not in effect"),
        (f"{_TLS}\nzookeeper.ssl.ocsp.enable=true", "zookeeper.ssl.ocsp.enable", "not in effect"),
        (
            f"{_TLS}\nzookeeper.ssl.cipher.suites=TLS_AES_128_GCM_SHA256",
            "zookeeper.ssl.cipher.suites",
            "not in effect",
        ),
        (
            f"{_TLS}\nzookeeper.ssl.enabled.protocols=TLSv1.1,TLSv1.2",
            "zookeeper.ssl.enabled.protocols",
            "TLSv1.1",
        ),
        (
            f"{_TLS}\nzookeeper.ssl.keystore.type=BCFKS",
            "zookeeper.ssl.keystore.type",
            "use PEM or PKCS12",
        ),
        (
            f"{_TLS}\nzookeeper.ssl.endpoint.identification.algorithm=LDAPS",
            "zookeeper.ssl.endpoint.identification.algorithm",
            "HTTPS",
        ),
        (
            f"{_CONNECT}\npenstock.zookeeper.sasl.jaas.config=a.B required username=u password=p;",
            "penstock.zookeeper.sasl.jaas.config",
            f"there are {_MODULE}",
        ),
        (
            f"{_CONNECT}\npenstock.zookeeper.sasl.jaas.config={_MODULE} required username=u;",
            "penstock.zookeeper.sasl.jaas.config",
            "lacks",
        ),
    ],
)
def test_what_would_not_be_in_effect_is_refused(text: str, name: str, why: str) -> None:
    (problem,) = _problems(text)
    assert f": {name}: " in problem
    assert why in problem


def test_module_of_zookeeper_logs_in_at_no_listener() -> None:
    with pytest.raises(JaasError, match="is not a login module here"):
        parse_jaas(f'{_MODULE} required username="b" password="p";')


def test_settings_of_something_else_are_refused_where_only_zookeepers_count() -> None:
    with pytest.raises(ValueError, match=r"ssl\.keystore\.location is not a setting of the conn"):
        parse_zookeeper_security({"ssl.keystore.location": "/k"}, connect="h:1", where="here")
