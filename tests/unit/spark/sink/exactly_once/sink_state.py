"""The state of a sink's topic: visible rows, undecided transactions and the last decision. Also
runs work that is killed at a fail point."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.unit.spark.sink.exactly_once.sink_process import Work, read_committed

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, FetchFrom, IsolationLevel
from penstock.client.transaction_values import PreparedState
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import iter_records
from penstock.spark.codec.visible_batches import OffsetBounds, visible_batches
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.sink.exactly_once.decision_log import DecisionLog
from penstock.spark.sink.exactly_once.fail_points import FOLDER_VARIABLE, POINTS_VARIABLE, FailPoint
from penstock.spark.sink.exactly_once.ongoing_transactions import list_ongoing
from penstock.spark.sink.exactly_once.transactional_ids import LEASES_TOPIC
from penstock.spark.sink.exactly_once.two_phase_commit import CommitDecision

TIMEOUT_MS = 20_000
PROCESS_TIMEOUT_S = 180
_ERRORS = "stderr"
_numbers = count(1)


def work_on(broker: penstock.Broker) -> Work:
    number = next(_numbers)
    topic = f"sink-{number}"
    broker.create_topic(topic)
    return Work(
        servers=broker.bootstrap_servers,
        topic=topic,
        query=f"query-{number}",
        run="run-1",
        batch=0,
        tasks=3,
        rows=4,
    )


def seen(work: Work) -> list[str]:
    return sorted(read_committed(work.servers, work.topic))


def settled(work: Work) -> list[str]:
    """Return the visible rows once all markers are written: a coordinator responds before that."""
    client, tp = shared_client(ClientSettings(work.servers)), TopicPartition(work.topic, 0)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while len({end_offset(client, tp, isolation) for isolation in IsolationLevel}) > 1:
        assert time.monotonic() < deadline, "undecided"
        time.sleep(0.01)
    return seen(work)


def end_offset(client: BlockingClient, tp: TopicPartition, isolation: IsolationLevel) -> int:
    return client.list_offsets({tp: LATEST}, isolation=isolation)[tp].offset


def undecided(work: Work) -> int:
    client = shared_client(ClientSettings(work.servers))
    ongoing = client.run(
        lambda cluster: list_ongoing(cluster, query=work.query, timeout_ms=TIMEOUT_MS)
    )
    return len(ongoing)


def read_last(work: Work) -> CommitDecision | None:
    """Return the decision that the next driver would find."""

    async def read(cluster: ClusterClient) -> CommitDecision | None:
        log = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        return log.state.last

    return shared_client(ClientSettings(work.servers)).run(read)


def count_renewals(servers: str, query: str) -> int:
    """How often the query has renewed its lease."""
    client, tp = shared_client(ClientSettings(servers)), TopicPartition(LEASES_TOPIC, 0)
    if client.metadata([LEASES_TOPIC]).topics[LEASES_TOPIC].error:
        return 0
    (fetched,) = client.fetch([FetchFrom(tp, Offset(0))], max_wait_ms=0)
    bounds = OffsetBounds(0, 2**62)
    batches = visible_batches(fetched.batches, bounds, aborted=None, check_crc=True).batches
    records = (record for batch in batches for record in iter_records(batch.view(fetched.batches)))
    return sum(record.key == query.encode() for record in records)


def decide_only(work: Work, states: Sequence[PreparedState]) -> None:
    """Write a decision only, like a driver that crashes right after it."""

    async def write(cluster: ClusterClient) -> None:
        log = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await log.write(CommitDecision(work.batch, tuple(states)), timeout_ms=TIMEOUT_MS)

    shared_client(ClientSettings(work.servers)).run(write)


def halt_and_kill(work: Work, point: FailPoint, folder: Path) -> None:
    process = halt(work, point, folder)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PROCESS_TIMEOUT_S) == -signal.SIGKILL


def halt(work: Work, point: FailPoint, folder: Path) -> subprocess.Popen[bytes]:
    """Run the work in a process until it halts at this point."""
    name = f"{point}@{work.batch}"
    folder.mkdir()
    halts = {POINTS_VARIABLE: name, FOLDER_VARIABLE: str(folder)}
    with (folder / _ERRORS).open("wb") as errors:
        process = subprocess.Popen(work.command(), env={**os.environ, **halts}, stderr=errors)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while not (folder / name).exists():
        assert process.poll() is None, f"ended before {point}: {errors_of(folder)}"
        assert time.monotonic() < deadline, point
        time.sleep(0.01)
    return process


def go_on(work: Work, point: FailPoint, folder: Path) -> None:
    (folder / f"{point}@{work.batch}.go").touch()


def errors_of(folder: Path) -> str:
    """What the process that halted has written to stderr."""
    return (folder / _ERRORS).read_text()
