"""A broker in a child process, seen from the parent.

The child ends with its parent, however that ends, because the parent holds the other end of its
stdin.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

START_TIMEOUT_S = 180.0  # recovery of large logs, or a busy machine
STOP_TIMEOUT_S = 60.0
_MAX_QUOTED_BYTES = 4000


class BrokerNotStarted(Exception):
    """The broker could not start, or was not started; the message has its log."""


class BrokerProcess:
    """Spawned by the constructor; call `wait_ready` before anything else.

    The broker's log is appended to the file `log`; without it, the log is deleted with the process.
    `prefix` is a command that runs before the broker's own and ends by becoming it (exec).
    """

    bootstrap_servers: str  # once ready

    def __init__(
        self, config: Mapping[str, str], *, log: Path | None = None, prefix: Sequence[str] = ()
    ) -> None:
        # Closed in `stop` or `kill`.
        self._log_file = tempfile.TemporaryFile() if log is None else log.open("a+b")  # noqa: SIM115
        # -c instead of -m saves the start-up time of runpy. -P keeps the broker from importing a
        # file of the parent's working directory, such as a queue.py.
        command = [
            sys.executable,
            "-P",
            "-c",
            "from penstock.server.child_process import main; main()",
        ]
        self._process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            process_group=0,  # Ctrl-C is for the parent, which may continue to use the broker
        )
        self.pid = self._process.pid
        self._send(config)

    def _send(self, config: Mapping[str, str]) -> None:
        """Not as an argument, which every user of the machine can read."""
        assert self._process.stdin is not None
        left = memoryview(json.dumps(config).encode() + b"\n")
        with suppress(BrokenPipeError):  # it has ended: `wait_ready` says why
            while left:
                left = left[os.write(self._process.stdin.fileno(), left) :]

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """BrokerNotStarted, with the process killed, if it does not serve in time."""
        try:
            self.bootstrap_servers = self._read_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    def _read_ready(self, timeout_s: float) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline().decode() if ready else ""
        word, _, servers = line.strip().partition(" ")
        if word == "ready":
            return servers
        self._process.kill()
        code = self._process.wait()
        logs = self.read_logs(_MAX_QUOTED_BYTES)
        reason = f"it exited with code {code}" if ready else f"not ready in {timeout_s} s"
        raise BrokerNotStarted(f"the broker did not start: {reason}. Its log:\n{logs}")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask_to_stop(self) -> None:
        """Returns at once; `stop` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """A clean shutdown. RuntimeError with the end of its log if it ended any other way."""
        self.ask_to_stop()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        logs = self.read_logs(_MAX_QUOTED_BYTES)
        self._close()
        if code != 0:
            raise RuntimeError(f"the broker exited with code {code}. Its log:\n{logs}")

    def kill(self) -> None:
        """Simulate a crash (kill -9)."""
        self._process.kill()
        self._process.wait()
        self._close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def read_logs(self, at_most_bytes: int | None = None) -> str:
        """The whole log or its end. Read with pread, because the child appends at the file's
        offset."""
        size = os.fstat(self._log_file.fileno()).st_size
        start = 0 if at_most_bytes is None else max(0, size - at_most_bytes)
        return os.pread(self._log_file.fileno(), size - start, start).decode(errors="replace")

    def _close(self) -> None:
        self._log_file.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
