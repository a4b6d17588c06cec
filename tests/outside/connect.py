"""Kafka Connect in distributed mode: a file into a topic, and the topic into another file.

The source delivers exactly once, and the worker is stopped and started again in the middle.
"""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import KafkaJars
from tests.outside.attempt import Attempt, OutsideFailed

STEPS = ("started", "source and sink", "resumed")
LINES = 100

_WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
_FILE = "org.apache.kafka.connect.file.FileStream"
_REST_TIMEOUT_S = 30.0


def run_connect(jars: KafkaJars, attempt: Attempt) -> None:
    source, sink = attempt.folder / "source.txt", attempt.folder / "sink.txt"
    source.write_text(_lines(0))
    with _worker(jars, attempt, "worker-1") as rest:
        attempt.ok("started")
        for name, config in _connectors(attempt, source, sink).items():
            _configure(attempt, f"{rest}/connectors/{name}/config", config, "worker-1")
        _wait_copied(attempt, sink, _lines(0), "worker-1")
        attempt.ok("source and sink")
    with source.open("a") as more:
        more.write(_lines(LINES))
    with _worker(jars, attempt, "worker-2"):
        _wait_copied(attempt, sink, _lines(0) + _lines(LINES), "worker-2")
        attempt.ok("resumed")


def _lines(first: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, first + LINES))


def _wait_copied(attempt: Attempt, sink: Path, wanted: str, worker: str) -> None:
    """Expects the lines in the order of the source, without duplicates: the topic has one
    partition."""
    attempt.wait_for(
        f"{sink} has {len(wanted.splitlines())} lines",
        lambda: sink.exists() and len(sink.read_text()) >= len(wanted),
        worker,
    )
    text = sink.read_text()
    assert text == wanted, f"{sink} differs from its source"


@contextmanager
def _worker(jars: KafkaJars, attempt: Attempt, name: str) -> Iterator[str]:
    """Yields the address of the worker's REST interface once the worker has joined its group."""
    rest = f"http://127.0.0.1:{_free_port()}"
    path = attempt.folder / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in _config(attempt, rest).items()))
    with attempt.started(name, jars.command(_WORKER, str(path), heap_mib=384)):
        attempt.wait_for("the worker answers", lambda: _answers(rest), name)
        yield rest


def _config(attempt: Attempt, rest: str) -> dict[str, Any]:
    prefix = f"{attempt.prefix}-connect"
    topics = {f"{kind}.storage.topic": f"{prefix}-{kind}s" for kind in ("config", "status")}
    topics["offset.storage.topic"] = f"{prefix}-offsets"
    factors = {
        f"{kind}.storage.replication.factor": attempt.brokers.replication
        for kind in ("config", "status", "offset")
    }
    return {
        "bootstrap.servers": attempt.brokers.bootstrap_servers,
        "group.id": prefix,
        "listeners": rest,
        **topics,
        **factors,
        "topic.creation.enable": "true",
        "exactly.once.source.support": "enabled",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "1000",
    }


def _connectors(attempt: Attempt, source: Path, sink: Path) -> dict[str, dict[str, str]]:
    topic = f"{attempt.prefix}-lines"
    return {
        "source": {
            "connector.class": f"{_FILE}SourceConnector",
            "file": str(source),
            "topic": topic,
            "topic.creation.default.replication.factor": str(attempt.brokers.replication),
            "topic.creation.default.partitions": "1",
        },
        "sink": {
            "connector.class": f"{_FILE}SinkConnector",
            "file": str(sink),
            "topics": topic,
            "consumer.override.isolation.level": "read_committed",
            "consumer.override.metadata.max.age.ms": "2000",
        },
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _answers(rest: str) -> bool:
    """It lists connectors only after it has joined its group and read its topics."""
    try:
        with urllib.request.urlopen(f"{rest}/connectors", timeout=_REST_TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _configure(attempt: Attempt, url: str, config: Mapping[str, str], worker: str) -> None:
    attempt.wait_for(f"{url} is accepted", lambda: _try_put(url, config), worker)


def _try_put(url: str, config: Mapping[str, str]) -> bool:
    """False while the workers rebalance, which a client has to wait for."""
    request = urllib.request.Request(
        url,
        data=json.dumps(config).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            assert response.status in (200, 201), response.read()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != HTTPStatus.CONFLICT:
                raise OutsideFailed(f"{url}: {error}: {error.read(2000)!r}") from error
        return False
    return True
