"""The clients: each in its own process, the same for both brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.clients.java_clients import JavaClients
from tests.clients.java_programs import resolve_java_program

from bench.broker.cells import JAVA, LIBRDKAFKA
from bench.broker.clients import CLIENT_TIMEOUT_S, ClientFailedError
from bench.broker.state import Sample

JAVA_VERSION = "4.4.0"  # speaks transactions v2 (KIP-890); librdkafka does not
_SOURCE = Path(__file__).parent / "java" / "TransactionLoad.java"


class Load(NamedTuple):
    """A producer's workload."""

    name: str
    client: str
    commit_every_ms: float  # 0: commits after each record
    size_bytes: int
    partitions: int
    seconds: float

    @property
    def key(self) -> str:
        return f"{self.name}, {self.client}"


def make_loads(seconds: float) -> list[Load]:
    return [
        Load(name, client, commit_every_ms, size_bytes, partitions, seconds)
        for name, commit_every_ms, size_bytes, partitions in (
            ("a transaction per record of 100 B", 0.0, 100, 1),
            ("1 KB records, a commit every 100 ms", 100.0, 1000, 12),
        )
        for client in (LIBRDKAFKA, JAVA)
    ]


def resolve_java() -> JavaClients:
    return resolve_java_program(JAVA_VERSION, _SOURCE, print)


def run_load(load: Load, java: JavaClients, bootstrap: str, topic: str) -> Sample:
    if load.client == JAVA:
        numbers = (load.seconds, load.commit_every_ms, load.size_bytes)
        command = java.command("TransactionLoad", bootstrap, topic, *map(str, numbers))
    else:
        program = [sys.executable, "-m", "bench.transactions.load", bootstrap, topic]
        command = [*program, json.dumps(load._asdict())]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise ClientFailedError(f"{load.key}: {(done.stdout + done.stderr)[-2000:]}")
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample
