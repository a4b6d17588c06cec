"""Users that exist before the first listener opens, and configurations that lack theirs."""

from pathlib import Path

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.properties import parse_properties
from penstock.protocol.scram import ScramClient, ScramMechanism
from penstock.security.sasl.scram import ScramExchange
from penstock.security.sasl.scram_users import ScramUsers
from penstock.server.broker_logins import PASSWORD_VARIABLE, FirstUser, find_first_users
from penstock.server.errors import StartRefused
from penstock.server.jwks import TokenKeys
from penstock.server.listener_sasl import make_listener_sasl

_SCRAM = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
    "sasl.enabled.mechanisms=SCRAM-SHA-256\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n"
)
_JAAS = (
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config="
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="broker" password="secret-of-brokers";\n'
)


def first_users(text: str) -> tuple[FirstUser, ...]:
    config = resolve_broker(parse_properties(text, file="server.properties"))
    return find_first_users(config, make_listener_sasl(config, ScramUsers(), TokenKeys()))


def can_log_in(user: FirstUser, mechanism: ScramMechanism, password: str) -> bool:
    users = ScramUsers()
    users.replace(user.name, user.make_credentials())
    client, exchange = ScramClient(mechanism, user.name, password), ScramExchange(mechanism, users)
    return (
        exchange.evaluate(client.final(exchange.evaluate(client.first()).token)).user == user.name
    )


def test_the_administrators_password_is_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pässword \r\nanother line\n")
    [admin] = first_users(
        f"{_SCRAM}penstock.admin.user=root\npenstock.admin.password.file={file}\n"
    )
    assert admin.name == "root"
    assert all(can_log_in(admin, mechanism, "pässword ") for mechanism in ScramMechanism)
    assert "pässword" not in repr(admin)


def test_the_administrators_password_may_be_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "of-the-environment")
    [admin] = first_users(f"{_SCRAM}penstock.admin.user=root\n")
    assert can_log_in(admin, ScramMechanism.SHA_512, "of-the-environment")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{_SCRAM}penstock.admin.user=root", f"{PASSWORD_VARIABLE} is empty or not set"),
        (
            f"{_SCRAM}penstock.admin.user=root\npenstock.admin.password.file=/nowhere/at/all",
            "/nowhere/at/all cannot be read (No such file or directory)",
        ),
        (
            f"{_SCRAM}penstock.admin.user=root\npenstock.admin.password.file=/dev/null",
            "/dev/null is empty or not set",
        ),
        ("penstock.admin.user=root", "no listener lets it log in; add SCRAM-SHA-512"),
    ],
)
def test_an_administrator_that_could_not_log_in_refuses_the_start(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    with pytest.raises(StartRefused) as refused:
        first_users(text)
    assert why in str(refused.value)


def test_brokers_of_a_cluster_that_log_in_by_scram_have_a_user() -> None:
    [broker] = first_users(f"{_SCRAM}{_JAAS}zookeeper.connect=127.0.0.1:2181\n")
    assert (broker.name, broker.mechanisms) == ("broker", (ScramMechanism.SHA_256,))
    assert can_log_in(broker, ScramMechanism.SHA_256, "secret-of-brokers")
    assert first_users(f"{_SCRAM}{_JAAS}") == ()  # a single broker logs in nowhere


def test_brokers_of_a_cluster_without_a_user_refuse_the_start() -> None:
    with pytest.raises(StartRefused, match=r"scram-sha-256\.sasl\.jaas\.config is not set"):
        first_users(f"{_SCRAM}zookeeper.connect=127.0.0.1:2181\n")
