"""A real Apache Kafka node (KRaft, one process) on loopback, and its Java clients.

Only processes started here are ended, by their own handle. Invariant: every wait is bounded and
ends early, with the tail of the log, when the process dies.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.interop.kafka_jars import KafkaJars

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 180.0
CLUSTER_ID = "cGVuc3RvY2staW50ZXJvcA"
STARTED = "Kafka Server started"

Headers = tuple[tuple[str, bytes | None], ...]

_SMALL_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # After a kill, the next start waits until the session of the killed broker expires; the default
    # is 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class KafkaFailedError(Exception):
    """Kafka failed; the message ends with the tail of its log."""


class Child:
    """One process whose output is read line by line; owned by whoever started it."""

    def __init__(self, command: Sequence[str], log: Path, *, cwd: Path | None = None) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False  # whether all output has been read
        self._log = log
        with log.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=cwd,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {log.name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self._log.open("w") as copy:
            for line in self.process.stdout:
                copy.write(line)
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_line(self, text: str, *, timeout_s: float, after: int = 0) -> int:
        """Wait for a line that contains `text`; return the number of the line after it."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for number in range(after, len(self._lines)):
                    if text in self._lines[number]:
                        return number + 1
                after = len(self._lines)
                left_s = deadline - time.monotonic()
                if self._ended or left_s <= 0:
                    raise KafkaFailedError(f"no line with {text!r} in {self._log}: {self.tail()}")
                self._changed.wait(left_s)

    def wait_next_line(self, number: int, *, timeout_s: float) -> str:
        """Wait until line `number` is there and return it."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or len(self._lines) > number, timeout=timeout_s
            )
            if len(self._lines) <= number:
                raise KafkaFailedError(f"no answer {number} in {self._log}: {self.tail()}")
            return self._lines[number]

    def tail(self) -> str:
        """The tail of both outputs."""
        errors = self._log.with_suffix(".err").read_text(errors="replace").splitlines()[-15:]
        return "\n".join([*[line.rstrip() for line in self._lines[-15:]], *errors])

    def end(self, *, with_signal: signal.Signals | None, timeout_s: float) -> int:
        """Close its input, send the signal if any, wait, and kill it after the timeout."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            if with_signal is not None:
                self.process.send_signal(with_signal)
            self.process.stdin.close()
            return self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            self.process.stdout.close()


class KafkaBroker:
    """A single-node Kafka in `directory`; formats it on the first start, keeps it on later ones.

    `directory/data` is its log directory. A second KafkaBroker on the same directory continues it.
    """

    def __init__(
        self, jars: KafkaJars, directory: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        self._jars = jars
        self.directory = directory
        self.data = directory / "data"
        self._properties = dict(properties or {})
        self._child: Child | None = None
        self.bootstrap = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self.stop() if error is None else self.kill()

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        port, controller_port = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        config = self.directory / "server.properties"
        config.write_text(self._config_text(port, controller_port))
        if not (self.data / "meta.properties").exists():
            self._format(config)
        run = self._jars.command if self._jars.archive.exists() else self._jars.archiving_command
        command = run("kafka.Kafka", str(config), heap_mib=512)
        self._child = Child(command, self.directory / "broker.log")
        try:
            self._child.wait_line(STARTED, timeout_s=START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly: SIGTERM, bounded wait."""
        status = self._get_child().end(with_signal=signal.SIGTERM, timeout_s=STOP_TIMEOUT_S)
        child, self._child = self._get_child(), None
        # The JVM exits with 143 when SIGTERM ended it after its shutdown hooks.
        if status not in (0, 143):
            raise KafkaFailedError(f"Kafka left with status {status}: {child.tail()}")
        self._jars.keep_archive()

    def kill(self) -> None:
        """Kills it as a crash would: no hook runs, nothing is flushed or trimmed."""
        self._get_child().end(with_signal=signal.SIGKILL, timeout_s=STOP_TIMEOUT_S)
        self._child = None

    def wait_line(self, text: str, *, timeout_s: float = 180.0, after: int = 0) -> int:
        """Wait for a line of the broker's log; return the position after it."""
        return self._get_child().wait_line(text, timeout_s=timeout_s, after=after)

    def _get_child(self) -> Child:
        if self._child is None:
            raise KafkaFailedError(f"the broker in {self.directory} is not running")
        return self._child

    def _config_text(self, port: int, controller_port: int) -> str:
        places = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data),
        }
        settings = _SMALL_NODE | places | self._properties
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self, config: Path) -> None:
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(config))
        run_java(self._jars, "kafka.tools.StorageTool", *arguments)


class WrittenRecord(NamedTuple):
    """A record as a Java client reported it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class KafkaClients:
    """Kafka's Java producer, consumer and admin client, in one JVM, driven by JSON lines."""

    def __init__(self, jars: KafkaJars, bootstrap: str, log: Path) -> None:
        command = jars.command("KafkaDriver", bootstrap)
        options = ["-Dpenstock.log.target=SYSTEM_ERR", "-Dpenstock.log.level=WARN"]
        self._child = Child([command[0], *options, *command[1:]], log)
        self._answers = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end(with_signal=None, timeout_s=STOP_TIMEOUT_S)

    def create_topic(self, topic: str, *, partitions: int = 1, **config: str) -> str:
        """Create it; `__` in a setting's name stands for the dot. Returns the topic id (base64)."""
        settings = {name.replace("__", "."): value for name, value in config.items()}
        answer = self._ask("create_topic", topic=topic, partitions=partitions, config=settings)
        return str(answer["topic_id"])

    def send(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int = 0,
        producer: Mapping[str, str],
    ) -> list[WrittenRecord]:
        """Send and flush; `producer` is the producer's configuration and its identity."""
        plain = [
            {
                "key": _to_text(record.key),
                "value": _to_text(record.value),
                "headers": [[name, _to_text(value)] for name, value in record.headers],
                "timestamp_ms": record.timestamp_ms,
            }
            for record in records
        ]
        answer = self._ask(
            "send", topic=topic, partition=partition, records=plain, producer=dict(producer)
        )
        return [
            WrittenRecord(offset, timestamp_ms, record.key, record.value, record.headers)
            for record, (offset, timestamp_ms) in zip(records, answer["written"], strict=True)
        ]

    def begin(self, producer: Mapping[str, str]) -> None:
        """Begin a transaction of a producer that has a `transactional.id`."""
        self._ask("begin", producer=dict(producer))

    def commit(self, producer: Mapping[str, str]) -> None:
        """Commit it."""
        self._ask("commit", producer=dict(producer))

    def abort(self, producer: Mapping[str, str]) -> None:
        """Abort it."""
        self._ask("abort", producer=dict(producer))

    def consume(
        self, topic: str, *, partition: int = 0, isolation: str = "read_uncommitted"
    ) -> tuple[list[WrittenRecord], int]:
        """Everything in the partition, and its end offset, at that isolation level."""
        answer = self._ask("consume", topic=topic, partition=partition, isolation=isolation)
        records = [
            WrittenRecord(
                record["offset"],
                record["timestamp_ms"],
                _from_text(record["key"]),
                _from_text(record["value"]),
                tuple((name, _from_text(value)) for name, value in record["headers"]),
            )
            for record in answer["records"]
        ]
        return records, int(answer["end_offset"])

    def _ask(self, op: str, **arguments: object) -> dict[str, Any]:
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"op": op} | arguments) + "\n")
        stdin.flush()
        line = self._child.wait_next_line(self._answers, timeout_s=ANSWER_TIMEOUT_S)
        self._answers += 1
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KafkaFailedError(f"{op}: {answer['error']}")
        return answer


class ToolOutput(NamedTuple):
    """The output and exit code of a Java tool."""

    status: int
    out: str
    errors: str


def run_java(
    jars: KafkaJars, main_class: str, *arguments: str, check: bool = True, timeout_s: float = 180.0
) -> ToolOutput:
    """Run one of Kafka's tools to its end."""
    done = subprocess.run(
        jars.command(main_class, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    # Latin-1 keeps every byte, whatever a record's value holds.
    output = ToolOutput(done.returncode, done.stdout.decode("latin-1"), done.stderr.decode())
    if check and output.status != 0:
        raise KafkaFailedError(f"{main_class} left with {output.status}: {output}")
    return output


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _to_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_text(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
