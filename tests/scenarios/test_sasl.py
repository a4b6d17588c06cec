"""A broker with SASL_SSL: strangers, the first user, the command line, and who may do what."""

import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.raw_client import RawClient
from tests.scenarios.up_process import penstock_up

import penstock
from penstock.model.acls import AccessControlEntry, AclPermission
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

pytestmark = pytest.mark.xdist_group("tls")
_WAIT_S = 120
_PASSWORD = "of-the-administrator"
_SETTINGS = {
    "penstock.admin.user": "root",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root;User:penstock",
}


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    password = tmp_path_factory.mktemp("sasl") / "password"
    password.write_text(f"{_PASSWORD}\nanother line\n")
    config = {**_SETTINGS, "penstock.admin.password.file": str(password)}
    with penstock.Broker(security="sasl_ssl", config=config) as broker:
        broker.create_topic("orders")
        yield broker


def as_user(broker: penstock.Broker, user: str, password: str) -> dict[str, str]:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
    return {**broker.client_config, **login}


def write_config(folder: Path, config: dict[str, str]) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return path


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_command_line_keeps_users(broker: penstock.Broker, tmp_path: Path) -> None:
    config = write_config(tmp_path, as_user(broker, "root", _PASSWORD))
    option = ("--client-config", str(config))
    created = run("user", "create", "ada", *option, PENSTOCK_USER_PASSWORD="of-ada")
    assert created.returncode == 0, created.stderr
    assert "user ada can log in by SCRAM-SHA-256 and SCRAM-SHA-512" in created.stdout
    assert '"name": "ada"' in run("user", "list", "--json", *option).stdout
    assert "root" in run("user", "list", *option).stdout
    ada = as_user(broker, "ada", "of-ada")
    with penstock.Admin(broker.bootstrap_servers, config=ada) as admin:
        assert admin.list_topics() == []  # logged in, and without any right
    deleted = run("user", "delete", "ada", "--mechanism", "SCRAM-SHA-512", *option)
    assert deleted.returncode == 0, deleted.stderr
    with (
        penstock.Admin(broker.bootstrap_servers, config=ada, timeout_s=60) as admin,
        pytest.raises(penstock.AuthenticationFailed),
    ):
        admin.list_topics()
    assert run("user", "delete", "nobody", *option).returncode == 1


def test_the_command_line_refuses_a_user_without_a_password(broker: penstock.Broker) -> None:
    refused = run("user", "create", "ada", "--bootstrap", broker.bootstrap_servers)
    assert refused.returncode == 2
    assert "--password-file or PENSTOCK_USER_PASSWORD" in refused.stderr


def test_acls_are_those_of_the_user_that_logged_in(broker: penstock.Broker) -> None:
    servers = broker.bootstrap_servers
    with penstock.Admin(servers, config=as_user(broker, "root", _PASSWORD)) as root:
        root.create_user("bob", "of-bob")
        read = AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermission.ALLOW)
        topic = penstock.ResourcePattern(ResourceType.TOPIC, "orders")
        root.create_acls(penstock.AclBinding(topic, read))
    bob = as_user(broker, "bob", "of-bob")
    with penstock.Admin(servers, config=bob) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["orders"]
        with pytest.raises(penstock.RefusedByBroker, match="User:bob needs DESCRIBE"):
            admin.list_users()
    with (
        penstock.Producer(servers, config=bob) as producer,
        pytest.raises(penstock.ClientError, match="uthoriz"),
    ):
        producer.send_and_wait("orders", b"x", timeout_s=_WAIT_S)


def test_strangers_get_nothing_but_a_login(broker: penstock.Broker) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    context = ssl.create_default_context(cafile=broker.client_config["ssl.ca.location"])
    for key in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.SASL_AUTHENTICATE, ApiKey.CREATE_ACLS):
        with (
            socket.create_connection((host, int(port)), timeout=_WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as sock,
        ):
            frame = struct.pack(">hhih", key, 1, 7, -1) + b"\0" * 16
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            assert sock.recv(1) == b""


def test_a_client_of_another_listener_may_not_log_in_there(tmp_path: Path) -> None:
    with penstock.Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        answer = client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
        assert client.is_served()


def test_up_creates_the_first_user_once(tmp_path: Path) -> None:
    """Without TLS, as SCRAM allows; a later start with another password changes nothing."""
    listener = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    }
    options = [part for item in listener.items() for part in ("--set", "=".join(item))]
    options += ["--data", str(tmp_path / "data"), "--admin-user", "root"]
    config = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "root",
        "sasl.password": "first",
    }
    for password in ("first", "second"):
        file = tmp_path / password
        file.write_text(password)
        with (
            penstock_up(*options, "--admin-password-file", str(file)) as up,
            penstock.Admin(up.bootstrap_servers, config=config) as admin,
        ):
            assert [user.name for user in admin.list_users()] == ["root"]
