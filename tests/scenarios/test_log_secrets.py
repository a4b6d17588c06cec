"""No secret ever gets into the log: not from config files, requests, records or failed logins.

Everything is logged, down to TRACE, in both formats.
"""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import pytest
from tests.scenarios.raw_client import RawClient
from tests.scenarios.up_process import penstock_up, try_up

import penstock
from penstock.client.admin_values import AlterConfigOp, ConfigResource
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey

SECRETS = {
    "ssl.keystore.password": "secret-of-keystore",
    "ssl.key.password": "secret-of-key",
    "ssl.truststore.password": "secret-of-truststore",
    "delegation.token.secret.key": "secret-of-tokens",
    "password.encoder.secret": "secret-of-encoder",
    "listener.name.plaintext.ssl.key.password": "secret-of-listener",
}
MARK = "secret-of-"  # every secret here begins so


def try_alter(servers: str, resource: ConfigResource, *changes: AlterConfigOp) -> None:
    async def ask() -> None:
        async with ClusterClient(servers) as client:
            with suppress(ClientError):  # secrets are refused, and that is logged or not
                await client.admin.incremental_alter_configs({resource: changes})

    asyncio.run(ask())


def send_credentials(servers: str) -> None:
    """A client that expects SASL here sends its password, framed and bare."""
    plain = b"\0alice\0secret-of-alice"
    with RawClient(servers) as client:
        client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        client.try_send(len(plain).to_bytes(4, "big") + plain)
        assert client.is_cut_off()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_of_configs_requests_or_records_is_logged(
    tmp_path: Path, log_format: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={secret}\n" for name, secret in SECRETS.items()))
    options = ("--config", str(file), "--log-format", log_format, "--log-level", "trace")
    with penstock_up("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *options) as up:
        servers = up.bootstrap_servers
        every = ConfigResource.all_brokers()
        try_alter(servers, every, AlterConfigOp("ssl.key.password", "secret-of-request"))
        try_alter(servers, every, AlterConfigOp("acme.token", "secret-of-acme"))
        try_alter(servers, every, AlterConfigOp("log.cleaner.threads", "secret-of-slip"))
        send_credentials(servers)
        with penstock.Producer(servers) as producer:
            producer.send_and_wait("mail", b"secret-of-value", key=b"secret-of-key-bytes")
        assert up.end() == 0
        logs = "\n".join(up.logs)
    assert "config_changed" in logs
    assert "acme.token" in logs
    assert MARK not in logs


def test_a_refused_config_does_not_show_its_secrets(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{name}={secret}" for name, secret in SECRETS.items()]
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    lines.append(f'sasl.jaas.config={jaas} username="alice" password="secret-of-jaas";')
    lines.append("listeners=SASL_PLAINTEXT://127.0.0.1:0")
    file.write_text("\n".join(lines))
    done = try_up("--config", str(file), "--data", str(tmp_path / "data"))
    assert done.returncode != 0
    assert "start_refused" in done.stderr
    assert MARK not in done.stderr + done.stdout


def test_no_secret_of_a_login_is_logged(tmp_path: Path) -> None:
    """CVE-2026-33558: tokens, salts and keys of logins that succeed and of those that do not."""
    logs = {"logging.level": "TRACE"}
    with penstock.Broker(data=tmp_path, security="sasl_ssl", config=logs) as broker:
        config, servers = broker.client_config, broker.bootstrap_servers
        with penstock.Admin(servers, config=config) as admin:
            admin.create_user("alice", "secret-of-alice")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            for password in ("secret-of-alice", "secret-of-nobody"):
                login = {"sasl.username": "alice", "sasl.password": password}
                alice = {**config, "sasl.mechanism": mechanism, **login}
                with (
                    penstock.Admin(servers, config=alice, timeout_s=60) as admin,
                    suppress(penstock.AuthenticationFailed),
                ):
                    admin.list_users()
        stored = re.findall(
            rb"(?:salt|stored_key|server_key)=([A-Za-z0-9+/=]{20,})", _read(tmp_path)
        )
        assert len(stored) >= 6
        logged = broker.logs()
    assert "authentication_failed" in logged
    assert "user_altered" in logged
    assert MARK not in logged
    assert config["sasl.password"] not in logged
    assert [value for value in stored if value.decode() in logged] == []


def _read(folder: Path) -> bytes:
    """What the metadata store has on disk."""
    files = (path for path in (folder / ".coordination").rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


def test_no_secret_of_the_config_is_an_argument_of_the_process() -> None:
    """Every user of the machine can read the arguments of a process."""
    with penstock.Broker(config={"ssl.key.password": "secret-of-key"}) as broker:
        arguments = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    assert b"penstock" in arguments
    assert MARK.encode() not in arguments
