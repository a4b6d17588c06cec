"""`penstock up` as a user runs it: a process with its output, stopped by signals."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_TIMEOUT_S = 180


class UpProcess:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid
        self.logs: list[str] = []  # lines of stderr, as they arrive
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()
        self.bootstrap_servers = self._wait_ready()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        self.logs.extend(line.rstrip("\n") for line in self._process.stderr)

    def _wait_ready(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # returns at the latest when the process ends
        word, _, servers = line.strip().partition(" ")
        assert word == "ready", (line, self.end(signal.SIGKILL), self.logs)
        return servers

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(READY_TIMEOUT_S)
        self._reader.join(READY_TIMEOUT_S)
        return code


@contextmanager
def penstock_up(
    *arguments: str, cwd: Path | None = None, prefix: Sequence[str] = ()
) -> Iterator[UpProcess]:
    """`prefix` is a command that runs first and becomes the broker (exec)."""
    with subprocess.Popen(
        [*prefix, *up_command(*arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    ) as process:
        try:
            yield UpProcess(process)
        finally:
            if process.poll() is None:
                process.kill()


def up_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", "up", *arguments]


def try_up(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a broker that must fail to start."""
    return subprocess.run(
        up_command(*arguments), capture_output=True, text=True, timeout=180, check=False
    )
