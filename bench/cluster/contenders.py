"""The contenders: clusters of three local brokers, each of which can be killed.

Penstock's cluster has the processes of `penstock up --brokers 3`, including its ZooKeeper.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from random import sample
from types import TracebackType
from typing import Protocol, Self

from bench.broker.processes import cpu_seconds, list_group, proportional_mb
from penstock.config.listeners import Listener
from penstock.server.development_defaults import CLUSTER_SETTINGS
from penstock.server.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
HOST = "127.0.0.1"


class Contender(Protocol):
    """A context manager that stops its processes on exit."""

    session_ms: int  # session timeout of a broker

    @property
    def bootstrap(self) -> str: ...
    def list_pids(self) -> list[int]:
        """The processes of the whole cluster."""

    def kill(self, broker: int) -> None:
        """Kills the broker with SIGKILL and waits for the process."""

    def start(self, broker: int) -> None:
        """Restarts the broker with its data. May return before it serves."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def pick_ports(count: int) -> list[int]:
    """Free ports outside the ephemeral range, so that a killed broker gets its port back."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in sample(range(20_000, 30_000), 1000):
            if len(ports) == count:
                break
            with suppress(OSError):
                held.enter_context(socket.create_server((HOST, port)))
                ports.append(port)
    return ports


def cluster_cpu_seconds(contender: Contender) -> float:
    return sum(map(cpu_seconds, contender.list_pids()))


def cluster_mb(contender: Contender) -> float:
    return sum(map(proportional_mb, contender.list_pids()))


class PenstockCluster:
    session_ms = int(CLUSTER_SETTINGS["zookeeper.session.timeout.ms"])

    def __init__(self, directory: Path) -> None:
        ports = pick_ports(len(BROKERS))
        listeners = [[Listener("PLAINTEXT", HOST, port)] for port in ports]
        self._local = LocalCluster(directory, listeners=listeners)

    @property
    def bootstrap(self) -> str:
        return self._local.bootstrap_servers

    def list_pids(self) -> list[int]:
        assert self._local.ensemble is not None
        groups = [server.process_group for server in self._local.ensemble.servers]
        brokers = [process.pid for process in self._local.processes.values()]
        return brokers + [pid for group in groups for pid in list_group(group)]

    def kill(self, broker: int) -> None:
        self._local.processes.pop(broker).kill()

    def start(self, broker: int) -> None:
        self._local.start_broker(broker)

    def __enter__(self) -> Self:
        self._local.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._local.stop()
