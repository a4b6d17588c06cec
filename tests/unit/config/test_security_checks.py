"""Security settings that are configured but not in effect stop the broker."""

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.properties import parse_properties
from penstock.config.raw_config import ConfigError

_ACLS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
_PLAIN_AND = (
    "listeners=PLAINTEXT://:1,OUT://:2\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
)


def _problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        resolve_broker(parse_properties(text, file="server.properties"))
    return caught.value.problems


def test_every_setting_of_java_that_a_listener_depends_on_is_named() -> None:
    problems = _problems(
        f"{_PLAIN_AND}OUT:SASL_SSL\nssl.engine.factory.class=a.B\nsasl.enabled.mechanisms=PLAIN\n"
        "listener.name.out.plain.sasl.server.callback.handler.class=a.C\n"
        "listener.name.plaintext.ssl.keystore.location=/elsewhere\nsuper.users=User:a"
    )
    assert [problem.split(": ")[:2] for problem in problems] == [
        ["server.properties:5", "listener.name.out.plain.sasl.server.callback.handler.class"],
        ["server.properties:3", "ssl.engine.factory.class"],
    ]
    assert all("depends on it; remove it" in problem for problem in problems)


def test_settings_of_certificates_are_not_named_for_a_sasl_plaintext_listener() -> None:
    text = f"{_PLAIN_AND}OUT:SASL_PLAINTEXT\nssl.engine.factory.class=a.B"
    assert resolve_broker(parse_properties(text, file="server.properties")).warnings == ()


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("authorizer.class.name=a.Ranger", "authorizer.class.name", "a.Ranger cannot be loaded"),
        (f"{_ACLS}\nsuper.users=ada", "super.users = 'ada' is not valid; allowed", "User:a;User:b"),
        (f"{_ACLS}\nzookeeper.connect=h:1", "super.users", "names nobody"),
        (
            f"{_ACLS}\nzookeeper.connect=h:1\nsuper.users=User:ada",
            "super.users",
            "lacks User:ANONYMOUS",
        ),
    ],
)
def test_an_authorizer_that_could_not_work_is_refused(text: str, name: str, why: str) -> None:
    [problem] = _problems(text)
    assert problem.split(": ")[1] == name
    assert why in problem


def test_security_of_a_listener_that_is_not_there_is_refused() -> None:
    (problem,) = _problems("listener.name.out.ssl.client.auth=required")
    assert (
        "listener.name.out.ssl.client.auth: names no listener of listeners (PLAINTEXT)" in problem
    )
    resolve_broker(
        parse_properties(
            f"{_PLAIN_AND}OUT:SSL\nlistener.name.OUT.ssl.client.auth=required", file="f"
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "listeners=SSL://h:1\nsecurity.inter.broker.protocol=SSL",
        f"{_PLAIN_AND}OUT:SSL\nzookeeper.connect=zk:2181",
        f"{_PLAIN_AND}OUT:SSL\nssl.protocol=TLSv1.3\nssl.secure.random.implementation=SHA1PRNG",
    ],
)
def test_tls_listeners_are_accepted(text: str) -> None:
    assert resolve_broker(parse_properties(text, file="server.properties")).warnings == ()


def test_an_engine_of_java_refuses_the_listener_that_would_use_it() -> None:
    (problem,) = _problems(f"{_PLAIN_AND}OUT:SSL\nssl.engine.factory.class=a.B")
    assert "ssl.engine.factory.class: is not in effect, and listener OUT depends on it" in problem


def test_settings_of_kerberos_do_no_harm_to_a_listener_without_it() -> None:
    """librdkafka's 0081 sets one of them on a broker with SCRAM."""
    text = (
        "listeners=SASL_SSL://:1\nsecurity.inter.broker.protocol=SASL_SSL\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        "sasl.kerberos.min.time.before.relogin=58000"
    )
    config = resolve_broker(parse_properties(text, file="server.properties"))
    assert config["sasl.kerberos.min.time.before.relogin"] == 58_000


@pytest.mark.parametrize(
    "text",
    [
        "ssl.client.auth=required",
        "ssl.keystore.location=/etc/key\nssl.keystore.password=secret",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"{_PLAIN_AND}OUT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "authorizer.class.name=\nsuper.users=User:a",
        f"{_ACLS}\nallow.everyone.if.no.acl.found=true",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"{_ACLS}\nzookeeper.connect=h:1\nsuper.users=User:ada; User:ANONYMOUS",
        "security.inter.broker.protocol=PLAINTEXT",
        "zookeeper.ssl.client.enable=false\nzookeeper.ssl.truststore.location=/etc/trust",
        "zookeeper.set.acl=false",
        "delegation.token.secret.key=secret\npassword.encoder.secret=secret",
    ],
)
def test_security_settings_that_nothing_active_depends_on_are_accepted(text: str) -> None:
    assert resolve_broker(parse_properties(text, file="server.properties")).warnings == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("create.topic.policy.class.name", "a.B"),
        ("alter.config.policy.class.name", "a.B"),
    ],
)
def test_a_guard_that_is_not_in_effect_is_refused_by_name(name: str, value: str) -> None:
    (problem,) = _problems(f"{name}={value}")
    assert problem.startswith(f"server.properties:1: {name}: ")
    assert "is not in effect" in problem
    assert "remove it" in problem


def test_a_setting_of_a_listener_that_is_set_in_two_spellings_is_refused() -> None:
    """The names of listeners are the same in any case, and the later one would win in silence."""
    [problem] = _problems(
        "listeners=SSL://:1\nsecurity.inter.broker.protocol=SSL\n"
        "listener.name.SSL.ssl.client.auth=required\nlistener.name.ssl.ssl.client.auth=none"
    )
    assert problem == (
        "server.properties:4: listener.name.ssl.ssl.client.auth: is set as "
        "listener.name.SSL.ssl.client.auth, too; remove one of them"
    )


def test_a_listener_of_brokers_with_tls_may_be_named_in_any_case() -> None:
    """Not taken for plaintext, with the advice to let anonymous clients do everything."""
    resolve_broker(
        parse_properties(
            f"{_ACLS}\nzookeeper.connect=h:1\nsuper.users=User:CN=broker\n"
            "listeners=inside://:1\nlistener.security.protocol.map=inside:SSL\n"
            "inter.broker.listener.name=inside",
            file="server.properties",
        )
    )
