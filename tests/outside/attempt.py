"""One attempt: an outside program against a broker or a cluster, within a bounded time.

Invariant: an attempt passes only if every step that its entry names was reported, in order, and
every process that it started has ended. Its folder keeps all output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import Say
from tests.outside.brokers import Brokers

POLL_EVERY_S = 0.2
STOP_TIMEOUT_S = 30.0
_TAIL_LINES = 25


class OutsideFailed(Exception):
    """An outside program failed; the message contains its output."""


class Unavailable(Exception):
    """A program or package is not available here; the message says why and what to do."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What one entry works with, and the steps that it reports."""

    brokers: Brokers
    prefix: str  # prefix of every topic and group that it creates
    folder: Path
    deadline: float  # on the monotonic clock
    say: Say
    passed: list[str] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)  # the latest

    def ok(self, step: str) -> None:
        self.passed.append(step)

    def left_s(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def plan(self, steps: Sequence[str]) -> str:
        """The only argument of a program of ours, as JSON."""
        plan: dict[str, Any] = {
            "bootstrap": self.brokers.bootstrap_servers,
            "prefix": self.prefix,
            "replication": self.brokers.replication,
            "steps": list(steps),
        }
        if "compacted" in steps:
            plan["compacted"] = self.brokers.compacted_topic()._asdict()
        return json.dumps(plan)

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        text_in: str = "",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Runs a command to its end and returns its standard output; raises OutsideFailed unless it
        exits with 0."""
        with self.started(name, command, env=env, stdin=subprocess.PIPE) as process:
            try:
                process.communicate(text_in.encode(), timeout=self.left_s())
            except subprocess.TimeoutExpired as error:
                raise OutsideFailed(f"{name} did not end in time; {self.tail(name)}") from error
        if process.returncode != 0:
            raise OutsideFailed(f"{name} ended with {process.returncode}; {self.tail(name)}")
        return self.output(name)

    @contextmanager
    def started(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs a process in a session of its own, which ends with the block."""
        with self._output(name).open("wb") as out, self._errors(name).open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=os.environ | (env or {}),
                start_new_session=True,
            )
        self._processes[name] = process
        try:
            yield process
        finally:
            _end(process)

    def wait_for(self, what: str, is_so: Callable[[], bool], name: str = "") -> None:
        """Poll until the condition holds, within this attempt's time. OutsideFailed at once if the
        process `name`, which is to bring it about, has ended without it."""
        process = self._processes.get(name)
        while True:
            code = None if process is None else process.poll()  # before the condition's last check
            if is_so():
                return
            if code is not None:
                raise OutsideFailed(f"{name} ended with {code} before {what}; {self.tail(name)}")
            if time.monotonic() > self.deadline:
                raise OutsideFailed(f"not in time: {what}; {self.tail(name) if name else ''}")
            time.sleep(POLL_EVERY_S)

    def tail(self, name: str) -> str:
        texts = [
            path.read_text(errors="replace") for path in (self._output(name), self._errors(name))
        ]
        lines = [line for text in texts for line in text.splitlines()[-_TAIL_LINES:]]
        return "\n".join(["its last lines:", *lines])

    def output(self, name: str) -> str:
        return self._output(name).read_text(errors="replace")

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _errors(self, name: str) -> Path:
        return self.folder / f"{name}.err"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdin is not None:
        process.stdin.close()


def steps_of(output: str) -> list[str]:
    """The steps that a program of ours reported."""
    return [line.removeprefix("ok ") for line in output.splitlines() if line.startswith("ok ")]
