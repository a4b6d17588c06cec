"""The two brokers, started as their users start them.

Invariant: a started node is stopped when its context exits, also after an error.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.interop.kafka_broker import CLUSTER_ID, run_java
from tests.interop.kafka_jars import KafkaJars, KafkaUnavailableError, resolve_kafka_jars

from bench.broker.wire import Wire

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0

# From Kafka's own start script.
JVM_OPTIONS = [
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]  # fmt: skip

# From Kafka's own server.properties.
KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class NodeFailedError(Exception):
    """A broker failed to start or stop; the message has the end of its log."""


class Prepared(Protocol):
    """A broker that can be started; `prepare` does the untimed set-up."""

    def prepare(self, directory: Path, port: int) -> list[str]: ...


class Kafka:
    def __init__(self, jars: KafkaJars, settings: Mapping[str, str] | None = None) -> None:
        self._jars = jars
        self._settings = dict(settings or {})

    def prepare(self, directory: Path, port: int) -> list[str]:
        """Writes its settings, formats its directory, and returns the start command."""
        settings = KAFKA_SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
            "log.dirs": str(directory / "data"),
            **self._settings,
        }
        config = directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(config))
        run_java(self._jars, "kafka.tools.StorageTool", *arguments)
        logging = f"-Dlog4j2.configurationFile={self._jars.classes / 'log4j2.properties'}"
        class_path = ["-cp", f"{self._jars.jars}/*"]
        return [self._jars.java, *JVM_OPTIONS, logging, *class_path, "kafka.Kafka", str(config)]


class Penstock:
    def __init__(
        self, settings: Mapping[str, str] | None = None, *, sources: Path | None = None
    ) -> None:
        self._settings = settings or {}
        self._sources = sources  # a copy of src to run; None: what is installed

    def prepare(self, directory: Path, port: int) -> list[str]:
        program = Path(sys.executable).with_name("penstock")
        chosen = [] if self._sources is None else ["env", f"PYTHONPATH={self._sources}"]
        data = str(directory / "data")
        pairs = [f"{name}={value}" for name, value in self._settings.items()]
        options = [option for pair in pairs for option in ("--set", pair)]
        address = f"127.0.0.1:{port}"
        return [*chosen, str(program), "up", "--data", data, "--listen", address, *options]


class Node:
    """One broker process in its own directory."""

    def __init__(self, broker: Prepared, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.data = directory / "data"
        port = _free_port_pair()
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = broker.prepare(directory, port)
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Also again, after `kill`."""
        with self._log.open("wb") as log:
            self.started_at_s = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        self.__exit__(None, None, None)
        self._process = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
        if error is None and status not in (0, 143):  # 143: the JVM's exit code after SIGTERM
            raise NodeFailedError(f"exited with {status}: {self._tail()}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def connect(self) -> Wire:
        """Connects as soon as the broker listens."""
        assert self._process is not None
        deadline = time.perf_counter() + START_TIMEOUT_S
        while True:
            try:
                return Wire(self.bootstrap)
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.perf_counter() > deadline:
                    raise NodeFailedError(f"does not listen: {self._tail()}") from None
                time.sleep(0.001)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def _free_port_pair() -> int:
    """A free port whose successor is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


def require_kafka() -> KafkaJars:
    """Kafka's jars; exits if they are unavailable."""
    try:
        return resolve_kafka_jars(lambda text: print(text, file=sys.stderr, flush=True))
    except KafkaUnavailableError as error:
        sys.exit(f"this benchmark needs Kafka: {error}")
