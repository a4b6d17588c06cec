import json
import os
import pty
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.unit.storage.sample_logs import write_sample
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.protocol.build import find_build


def test_the_version_is_the_package_version_and_names_the_build() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"penstock {version('penstock')} ({find_build()} build)\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["log", "Exit codes: 0 done, 1"]),
        (["log", "--help"], ["dump", "verify", "without a broker"]),
        (["log", "dump", "-h"], ["Examples:", "penstock log dump data/orders-0", "--max-batches"]),
        (["log", "verify", "--help"], ["Examples:", "penstock log verify data", "--records"]),
    ],
)
def test_help_explains_itself_with_examples(arguments: list[str], words: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    for word in words:
        assert word in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["log", "nonsense"],
        ["log", "dump"],
        ["log", "dump", "/nowhere"],
        ["log", "dump", __file__],
        ["log", "dump", str(Path(__file__).parent)],
        ["log", "dump", "--max-batches", "0", "/"],
        ["log", "verify"],
        ["log", "verify", "/nowhere"],
        ["log", "verify", __file__],
        ["log", "verify", str(Path(__file__).parent)],
    ],
)
def test_wrong_usage_exits_2_with_a_message_on_stderr(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def test_the_installed_command_verifies_a_data_directory(tmp_path: Path) -> None:
    write_sample(tmp_path)
    command = [str(Path(sys.executable).parent / "penstock"), "log", "verify", str(tmp_path)]
    clean = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert clean.stdout.startswith("clean: ")
    log = min(tmp_path.glob("t-0/*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    damaged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert damaged.returncode == 1
    assert f"PROBLEM [damage] {log}, position " in damaged.stdout


def test_a_pipe_that_closes_early_causes_no_traceback(tmp_path: Path) -> None:
    write_sample(tmp_path)
    command = f"{Path(sys.executable).parent / 'penstock'} log dump {tmp_path} --deep | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_progress_goes_to_the_terminal_and_results_to_stdout(tmp_path: Path, command: str) -> None:
    write_sample(tmp_path)
    (tmp_path / "t-0" / "stray").touch()
    penstock = str(Path(sys.executable).parent / "penstock")
    ours, theirs = pty.openpty()
    result = subprocess.run(
        [penstock, "log", command, "--json", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 20)
    os.close(ours)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["type"] for line in lines} >= (
        {"note", "summary"} if command == "verify" else {"file", "batch"}
    )
    assert (b"checking" if command == "verify" else b"reading") in shown
