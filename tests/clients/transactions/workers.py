"""Transactional clients in processes of their own, driven and killed by tests.

Only processes started here are ended, by their own handles.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.transactions.worker import Taken
from tests.interop.kafka_broker import Child

REPOSITORY = Path(__file__).parents[3]
ANSWER_TIMEOUT_S = 240.0
TRANSACTION_MS = 60_000  # longer than any test keeps a transaction open


class WorkerRefused(Exception):
    """A command failed; `kind` is the client's own name for the reason."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class TransactionClient(NamedTuple):
    command: Sequence[str]
    fenced: frozenset[str]  # the client's name for being fenced


class Worker:
    """One client process: a producer and a group member."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._child = Child(command, log, cwd=REPOSITORY)
        self._answers = 0

    def open(self, transactional_id: str, *, timeout_ms: int = TRANSACTION_MS) -> Worker:
        self.ask("open", transactional_id=transactional_id, timeout_ms=timeout_ms)
        return self

    def begin(self) -> None:
        self.ask("begin")

    def send(self, topic: str, partition: int, *values: str, delay_ms: int = 0) -> None:
        self.ask("send", topic=topic, partition=partition, values=values, delay_ms=delay_ms)

    def commit(self) -> None:
        self.ask("commit")

    def abort(self) -> None:
        self.ask("abort")

    def read(self, topic: str, partition: int, *, isolation: str = "read_committed") -> list[str]:
        values: list[str] = self.ask("read", topic=topic, partition=partition, isolation=isolation)
        return values

    def join(self, group: str, topic: str) -> None:
        self.ask("join", group=group, topic=topic)

    def take(self) -> list[Taken]:
        return [Taken(*record) for record in self.ask("take")]

    def send_offsets(self) -> None:
        self.ask("send_offsets")

    def close(self) -> None:
        self.ask("close")

    def ask(self, op: str, **fields: Any) -> Any:
        self.tell(op, **fields)
        return self.wait_result()

    def tell(self, op: str, **fields: Any) -> None:
        """Does not wait for the result, which `wait_result` returns."""
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"op": op, **fields}) + "\n")
        stdin.flush()

    def wait_result(self) -> Any:
        line = self._child.wait_next_line(self._answers, timeout_s=ANSWER_TIMEOUT_S)
        self._answers += 1
        answer: Mapping[str, Any] = json.loads(line)
        if "kind" in answer:
            raise WorkerRefused(answer["kind"], answer["error"])
        return answer["result"]

    def kill(self) -> None:
        """kill -9."""
        self._child.end(with_signal=signal.SIGKILL, timeout_s=ANSWER_TIMEOUT_S)


class TransactionHarness:
    """Starts workers of one client; a worker that a test leaves alive is reused by the next."""

    def __init__(self, client: TransactionClient, logs: Path) -> None:
        self.client = client
        self._logs = logs
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._count = 0

    def take(self) -> Worker:
        worker = self._idle.pop() if self._idle else self._start()
        self._busy.append(worker)
        return worker

    def _start(self) -> Worker:
        self._count += 1
        return Worker(self.client.command, self._logs / f"worker-{self._count}.log")

    def kill(self, worker: Worker) -> None:
        self._busy.remove(worker)
        worker.kill()

    def clear(self, *, failed: bool) -> None:
        """After a failure, does not shut workers down in order."""
        for worker in list(self._busy):
            if failed:
                self.kill(worker)
            else:
                worker.close()
                self._busy.remove(worker)
                self._idle.append(worker)

    def end(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.kill()


def python_worker(client: str, bootstrap: str) -> list[str]:
    return [sys.executable, "-m", "tests.clients.transactions.worker", client, bootstrap]
