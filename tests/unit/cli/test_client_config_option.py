"""`--client-config`: on every command that talks to a cluster, and never without effect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.client_config_option import get_client_config
from penstock.cli.lazy import SUBCOMMANDS
from penstock.cli.main import app


def commands(command: Any, path: str = "penstock") -> Iterator[tuple[str, Any]]:
    yield path, command
    names = SUBCOMMANDS if path == "penstock" else getattr(command, "commands", {})
    for name in names:
        yield from commands(command.get_command(None, name), f"{path} {name}")


def test_every_command_that_talks_to_a_cluster_has_it() -> None:
    options = {
        path: {option for param in command.params for option in param.opts}
        for path, command in commands(get_command(app))
    }
    talking = {path for path, opts in options.items() if "--bootstrap" in opts}
    assert len(talking) > 30
    assert {path for path, opts in options.items() if "--client-config" in opts} == talking


@pytest.mark.parametrize(
    "arguments",
    [
        ["--client-config", "FILE", "topic", "list"],
        ["topic", "--client-config", "FILE", "list"],
        ["topic", "list", "--client-config", "FILE"],
        ["produce", "t", "--client-config", "FILE"],
        ["consume", "t", "--client-config", "FILE"],
        ["group", "describe", "g", "--client-config", "FILE"],
        ["job", "stats", "t", "--client-config", "FILE"],
    ],
)
@pytest.mark.parametrize("by_environment", [False, True])
def test_file_that_would_not_be_in_effect_ends_the_command(
    tmp_path: Path, arguments: list[str], by_environment: bool
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.ca.location=/ca.pem\n")
    environment = {}
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    if by_environment:
        given = [argument for argument in given if argument not in ("--client-config", str(file))]
        environment = {"PENSTOCK_CLIENT_CONFIG": str(file)}
    result = CliRunner().invoke(app, given, env=environment)
    assert result.exit_code == 2
    assert "ssl.ca.location: not in effect" in result.stderr


def test_option_of_one_command_is_not_that_of_the_next(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--client-config", str(tmp_path / "none"), "topic", "list"])
    assert result.exit_code == 2
    CliRunner().invoke(app, ["topic", "--help"])
    assert get_client_config().bootstrap is None


def test_address_comes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    result = CliRunner().invoke(app, ["topic", "list", "--client-config", str(file)])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
