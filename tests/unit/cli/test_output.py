"""A stdout that cannot be written: one line on stderr, or none if a pipe was closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.storage.sample_logs import write_sample

COMMANDS = [
    ["log", "dump", "{data}"],
    ["log", "dump", "--deep", "--json", "{data}"],
    ["log", "verify", "{data}"],
    ["log", "verify", "--json", "{data}"],
    ["log", "--help"],
    ["--version"],
]


def run(command: list[str], data: Path, stdout: int | None) -> subprocess.CompletedProcess[str]:
    arguments = [part.format(data=data) for part in command]
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with an unknown file, so that verify prints more than one line."""
    path = tmp_path_factory.mktemp("data")
    write_sample(path)
    (path / "notes.txt").touch()
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_behind_stdout_prints_one_line_on_stderr(
    data: Path, command: list[str]
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = run(command, data, full)
    os.close(full)
    assert result.stderr == "penstock: cannot write to stdout: No space left on device\n"
    assert result.returncode == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_ends_the_command_silently(data: Path, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = run(command, data, writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_closed_stdout_prints_one_line(data: Path) -> None:
    script = f'"{sys.executable}" -m penstock.cli.main log verify "{data}" >&-'
    result = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)
    assert result.stderr == "penstock: cannot write to stdout: Bad file descriptor\n"
    assert result.returncode == 1


def test_a_closed_stdin_is_wrong_usage() -> None:
    script = f"{sys.executable} -m penstock.cli.main produce orders <&-"
    result = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)
    assert result.stderr == (
        "penstock: stdin is closed: pipe lines to it, or name a file with --file\n"
    )
    assert result.returncode == 2
