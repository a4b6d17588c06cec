"""`penstock zookeeper`: what it refuses before it asks ZooKeeper anything."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

_LOGIN = (
    "penstock.zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule "
    'required username="b" password="secret";\n'
)


@pytest.mark.parametrize("command", ["secure", "unsecure"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.id=1\n", "has no zookeeper.connect; name ZooKeeper with --zookeeper"),
        ("zookeeper.connect=127.0.0.1:1\n", "has no login or certificate for ZooKeeper"),
        (
            "zookeeper.connect=127.0.0.1:1\nzookeeper.ssl.client.enable=true\n",
            "needs zookeeper.ssl.truststore.location",
        ),
        ("zookeeper.conect=127.0.0.1:1\n", "zookeeper.conect is not a known broker setting"),
    ],
)
def test_config_that_cannot_be_used_is_wrong_usage(
    tmp_path: Path, command: str, text: str, expected: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    result = CliRunner().invoke(app, ["zookeeper", command, "--config", str(file)])
    assert result.exit_code == 2
    assert expected in result.stderr


def test_zookeeper_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"zookeeper.connection.timeout.ms=50\n{_LOGIN}")
    arguments = ["zookeeper", "secure", "--config", str(file), "--zookeeper", "127.0.0.1:1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "no ZooKeeper answered within 50 ms at 127.0.0.1:1" in result.stderr
    assert "secret" not in result.stderr
