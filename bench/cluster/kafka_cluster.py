"""Three Kafka brokers with KRaft; each node is broker and controller, the smallest number of
processes.

Uses the JVM options of Kafka's start script and its server.properties, except that internal topics
have three replicas, which is Kafka's default.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kafka_broker import CLUSTER_ID, run_java
from tests.interop.kafka_jars import KafkaJars

from bench.broker.nodes import JVM_OPTIONS, KAFKA_SETTINGS, STOP_TIMEOUT_S, NodeFailedError
from bench.cluster.contenders import BROKERS, HOST, pick_ports

_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class KafkaCluster:
    session_ms = 9000  # the default of broker.session.timeout.ms

    def __init__(self, jars: KafkaJars, directory: Path) -> None:
        self._jars = jars
        self._directory = directory
        ports = pick_ports(2 * len(BROKERS))
        self._ports = dict(zip(BROKERS, ports[::2], strict=True))
        self._controller_ports = dict(zip(BROKERS, ports[1::2], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def list_pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def kill(self, broker: int) -> None:
        process = self._processes.pop(broker)
        process.kill()
        process.wait()

    def start(self, broker: int) -> None:
        config = self._folder(broker) / "server.properties"
        logging = f"-Dlog4j2.configurationFile={self._jars.classes / 'log4j2.properties'}"
        command = [self._jars.java, *JVM_OPTIONS, logging, "-cp", f"{self._jars.jars}/*"]
        with self._log(broker).open("ab") as log:
            self._processes[broker] = subprocess.Popen(
                [*command, "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        for broker in BROKERS:
            self._format(broker)
        for broker in BROKERS:
            self.start(broker)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        late = [broker for broker in list(self._processes) if not self._try_end(broker)]
        if late and error is None:
            tails = {
                number: self._log(number).read_text(errors="replace")[-1000:] for number in late
            }
            raise NodeFailedError(f"did not stop within {STOP_TIMEOUT_S:.0f} s: {tails}")

    def _try_end(self, broker: int) -> bool:
        try:
            self._processes[broker].wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill(broker)
            return False
        return True

    def _format(self, broker: int) -> None:
        folder = self._folder(broker)
        folder.mkdir(parents=True)
        config = folder / "server.properties"
        lines = [f"{name}={value}\n" for name, value in self._settings(broker).items()]
        config.write_text("".join(lines))
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(config))
        run_java(self._jars, "kafka.tools.StorageTool", *arguments)

    def _settings(self, broker: int) -> dict[str, str]:
        controllers = self._controller_ports
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in controllers.items())
        broker_address = f"PLAINTEXT://{HOST}:{self._ports[broker]}"
        return {
            **KAFKA_SETTINGS,
            **_REPLICATED,
            "node.id": str(broker),
            "listeners": f"{broker_address},CONTROLLER://{HOST}:{controllers[broker]}",
            "controller.quorum.voters": voters,
            "log.dirs": str(self._folder(broker) / "data"),
        }

    def _folder(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}"

    def _log(self, broker: int) -> Path:
        return self._folder(broker) / "broker.log"
