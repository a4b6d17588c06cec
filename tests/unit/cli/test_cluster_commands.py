"""Commands that talk to a broker, as far as they need none: usage, addresses, exit codes."""

from __future__ import annotations

import io
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli.lazy import SUBCOMMANDS
from penstock.cli.main import app
from penstock.cli.produce_command import Line, NoKey, _paced, _read_lines
from penstock.cli.tables import show_table


def dead_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["topic", "produce", "consume", "PENSTOCK_BOOTSTRAP"]),
        (["topic", "--help"], ["create", "list", "describe", "alter", "delete"]),
        (["topic", "create", "-h"], ["Examples:", "--partitions", "--replication-factor"]),
        (["topic", "list", "-h"], ["Examples:", "--json"]),
        (["topic", "describe", "-h"], ["Examples:", "high", "watermark"]),
        (["topic", "alter", "-h"], ["Examples:", "--delete-config"]),
        (["topic", "delete", "-h"], ["Examples:", "--if-exists"]),
        (["produce", "-h"], ["Examples:", "--key-separator", "--rate", "--acks"]),
        (["consume", "-h"], ["Examples:", "--from-beginning", "--isolation", "value_base64"]),
    ],
)
def test_help_explains_itself_with_examples(arguments: list[str], words: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    for word in words:
        assert word in result.stdout
    assert "--install-completion" not in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic"],
        ["topic", "nonsense"],
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--partitions", "many"],
        ["topic", "create", "t", "--config", "retention.ms"],
        ["topic", "create", "t", "--config", "=5"],
        ["topic", "alter", "t"],
        ["topic", "list", "--bootstrap", "nonsense"],
        ["topic", "list", "--bootstrap", ","],
        ["--bootstrap", "host:99999", "topic", "list"],
        ["produce"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--compression", "rar"],
        ["produce", "t", "--rate", "0"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--file", "/nowhere/at/all"],
        ["consume"],
        ["consume", "t", "--max-messages", "0"],
        ["consume", "t", "--timeout-s", "-1"],
        ["consume", "t", "--isolation", "total"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2_with_a_message_on_stderr(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "t"],
        ["topic", "list"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "--partitions", "5"],
        ["topic", "delete", "t"],
        ["produce", "t"],
        ["consume", "t"],
    ],
    ids=" ".join,
)
def test_an_unreachable_broker_is_one_clear_line(arguments: list[str]) -> None:
    address = dead_address()
    result = CliRunner().invoke(app, [*arguments, "--bootstrap", address], input="x\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"penstock: cannot reach a broker at {address}: nothing listens there "
        "(connection refused); is the broker up, and is the port right?\n"
    )


def test_the_default_address_is_localhost() -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--help"], env={"PENSTOCK_BOOTSTRAP": None})
    assert "127.0.0.1:9092" in result.stdout


def test_a_subcommand_imports_only_what_it_needs() -> None:
    code = (
        "import sys; from penstock.cli.main import app; from typer.testing import CliRunner; "
        "CliRunner().invoke(app, ['topic', 'create', '-h']); "
        "names = {'confluent_kafka', 'kio', 'rich', 'penstock.storage', 'penstock.client'}; "
        "print(names & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_subcommand_in_the_table_can_be_called() -> None:
    for name in SUBCOMMANDS:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_lines_lose_their_line_endings_and_nothing_else() -> None:
    source = io.BytesIO(b"a\n\r\n b \xff\r\nlast")
    assert list(_read_lines(source, None)) == [
        Line(None, b"a", 2),
        Line(None, b"", 2),
        Line(None, b" b \xff", 6),
        Line(None, b"last", 4),
    ]


def test_a_missing_separator_is_reported_with_its_line_number() -> None:
    lines = _read_lines(io.BytesIO(b"k=v\nnone\n"), b"=")
    assert next(lines) == Line(b"k", b"v", 4)
    with pytest.raises(NoKey, match="line 2 has no '='"):
        next(lines)


def test_lines_without_a_rate_are_not_delayed() -> None:
    lines = [Line(None, b"x", 1)] * 3
    assert list(_paced(iter(lines), None)) == lines


def test_a_table_that_is_not_on_a_terminal_has_aligned_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table(("topic", "count"), [("orders", 5), ("a", None), ("b", 1000)])
    assert capsys.readouterr().out == "topic   count\norders      5\na           -\nb        1000\n"
