"""The commands of docs/secured_cluster.md run as they stand there, and print what the page says.

`text` after a command is all of its output; lines of `log` are among it, whatever their time and
for `...`. A command exits with 1 if it says that something is refused, else with 0.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import randrange
from typing import NamedTuple

import pytest
from tests.profile import is_long
from tests.zookeeper import skip_without_zookeeper

pytestmark = pytest.mark.xdist_group("cluster")

PAGE = Path(__file__).parents[2] / "docs" / "secured_cluster.md"
WAIT_S = 180.0
BEGIN = "mkdir secured && "
_BLOCK = re.compile(r"^```(sh|text|log)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"\b9([01])9([234])\b")  # 9092 to 9094 and 9192 to 9194
_ANY = re.escape("...")
_REFUSALS = ("penstock: ", "denied: ")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ", flags=re.MULTILINE)


class Step(NamedTuple):
    command: str
    output: str | None  # the whole
    lines: list[re.Pattern[str]]


def read_steps(page: str) -> Iterator[Step]:
    blocks = [*_BLOCK.findall(page), ("", "")]
    for (kind, text), (after, output) in pairwise(blocks):
        if kind == "sh":
            said = output if after == "text" else None
            yield Step(text, said, read_patterns(output) if after == "log" else [])


def read_patterns(log: str) -> list[re.Pattern[str]]:
    lines = _TIME.sub("", log).splitlines()
    return [re.compile(f"^{re.escape(line).replace(_ANY, '.*')}$", re.MULTILINE) for line in lines]


def with_free_ports(page: str) -> str:
    first = {"0": find_free_ports(), "1": find_free_ports()}
    return _PORT.sub(lambda port: str(first[port[1]] + int(port[2]) - 2), page)


def find_free_ports() -> int:
    """The first of three; below those that the kernel gives to others."""
    while True:
        first = randrange(15_000, 30_000)
        try:
            with ExitStack() as held:
                for port in range(first, first + 3):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
                return first
        except OSError:
            continue


class Terminal:
    """Runs commands in the directory that the page has made, as its first command says."""

    def __init__(self, folder: Path, begin: str) -> None:
        self._begin = begin.removeprefix(BEGIN)
        self._folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: text for name, text in os.environ.items() if name[:9] != "PENSTOCK_"}
        self._environment = {**kept, "PATH": path}
        subprocess.run(["mkdir", "secured"], cwd=folder, check=True)

    def run(self, command: str) -> tuple[str, int]:
        """Its output and its exit code."""
        done = subprocess.run(
            ["bash", "-c", f"{self._begin}{command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
            text=True,
            check=False,
        )
        return done.stdout, done.returncode

    @contextmanager
    def serve(self, command: str) -> Iterator[str]:
        """Its first line, while it runs. It ends without an error."""
        with subprocess.Popen(
            ["bash", "-c", f"{self._begin}exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline()
                process.send_signal(signal.SIGTERM)
                assert process.wait(WAIT_S) == 0
            finally:
                process.kill()


def test_the_page_counts_ten_commands() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\*\*(\d+)\.\*\*", page, flags=re.MULTILINE) == [
        str(number) for number in range(1, 11)
    ]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.skipif(not is_long(), reason="the parts of it are tested one by one")
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    skip_without_zookeeper()
    first, *steps = read_steps(with_free_ports(PAGE.read_text()))
    assert first.command.startswith(BEGIN)
    terminal = Terminal(tmp_path, first.command)
    with ExitStack() as running:
        for step in steps:
            if step.command.startswith("penstock up "):
                assert running.enter_context(terminal.serve(step.command)) == step.output
            elif step.lines:
                wait_for(step, terminal)
            else:
                output, code = terminal.run(step.command)
                assert (step.command, code) == (step.command, int(output.startswith(_REFUSALS)))
                assert step.output in (None, output)


def wait_for(step: Step, terminal: Terminal) -> None:
    """Events reach the audit trail a moment later."""
    deadline = time.monotonic() + WAIT_S
    missing = step.lines
    while missing:
        assert time.monotonic() < deadline, missing
        output = _TIME.sub("", terminal.run(step.command)[0])
        missing = [line for line in step.lines if not line.search(output)]
