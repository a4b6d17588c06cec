"""What is compared: clusters of three brokers on this machine, each of whose brokers can be killed.

Penstock's are the processes of `penstock up --brokers 3`, with the ZooKeeper that comes with it.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from random import sample
from types import TracebackType
from typing import Protocol, Self

from bench.broker.processes import cpu_seconds, list_group, proportional_mb
from penstock.server.development_defaults import CLUSTER_SETTINGS
from penstock.server.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
HOST = "127.0.0.1"


class Contender(Protocol):
    """A context manager: what it started has ended when it ends."""

    session_ms: int  # how long a broker may say nothing before it counts as dead

    @property
    def bootstrap(self) -> str: ...
    def list_pids(self) -> list[int]:
        """Of everything that the cluster needs."""

    def kill(self, broker: int) -> None:
        """With SIGKILL; returns when the process is gone."""

    def start(self, broker: int) -> None:
        """Again, with its data. May return before it serves."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def pick_ports(count: int) -> list[int]:
    """Free ones that the system gives to nobody: a broker that was killed finds its own again."""
    found: list[int] = []
    with ExitStack() as held:
        for port in sample(range(20_000, 30_000), 1000):
            if len(found) == count:
                break
            with suppress(OSError):
                held.enter_context(socket.create_server((HOST, port)))
                found.append(port)
    return found


def cluster_cpu_seconds(contender: Contender) -> float:
    return sum(map(cpu_seconds, contender.list_pids()))


def cluster_mb(contender: Contender) -> float:
    return sum(map(proportional_mb, contender.list_pids()))


class PenstockCluster:
    session_ms = int(CLUSTER_SETTINGS["zookeeper.session.timeout.ms"])

    def __init__(self, directory: Path) -> None:
        self._local = LocalCluster(directory, host=HOST, ports=pick_ports(len(BROKERS)))

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
