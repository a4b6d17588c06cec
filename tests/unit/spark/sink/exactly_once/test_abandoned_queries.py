"""A broker ends what a query without a sign of life has left undecided, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.profile import is_long
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import (
    PROCESS_TIMEOUT_S,
    count_renewals,
    decide_only,
    errors_of,
    go_on,
    halt,
    halt_and_kill,
    seen,
    settled,
    undecided,
    work_on,
)

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import PreparedState
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.exactly_once.fail_points import FailPoint
from penstock.spark.sink.exactly_once.lease import LEAST_ABANDONED_AFTER_MS, renewal_interval_ms
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction
from penstock.spark.sink.exactly_once.transactional_ids import new_batch_query
from penstock.spark.sink.exactly_once.two_phase_commit import AbortedByAnotherRun

pytestmark = pytest.mark.xdist_group("exactly-once sink")
BOUND_MS = LEAST_ABANDONED_AFTER_MS
KILLS = tuple(FailPoint) if is_long() else (FailPoint.DECIDED,)
PAUSES = (FailPoint.COMMIT_BEGUN, *((FailPoint.DECIDED,) if is_long() else ()))
# A decision is written by then: its transactions are committed, whoever ends them.
FOREIGN = ("billing", "penstock-spark-driver:x", "penstock-spark:q:process:1")
COMMITTED = (FailPoint.DECIDED, FailPoint.ENDING, FailPoint.ENDED)


class Halted(NamedTuple):
    """A process that stands still at a fail point."""

    work: Work
    point: FailPoint
    process: subprocess.Popen[bytes]
    folder: Path

    def resume(self) -> int:
        """The exit status, once it has gone on to its end."""
        go_on(self.work, self.point, self.folder)
        self.process.send_signal(signal.SIGCONT)
        return self.process.wait(PROCESS_TIMEOUT_S)

    @property
    def errors(self) -> str:
        return errors_of(self.folder)


class SlowTask:
    """A task that has written its rows and waits for more, which come when the test says so."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._may_end = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(work.write_from, self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        yield self.work.rows_of(0)
        assert self._may_end.wait(PROCESS_TIMEOUT_S)

    def end(self) -> PreparedTransaction:
        self._may_end.set()
        self._pool.shutdown(wait=False)
        return self._running.result(PROCESS_TIMEOUT_S)


class Abandoned(NamedTuple):
    """Queries that begin to wait for their end at the same time, each with a topic of its own."""

    slow: SlowTask  # alive
    done: list[PreparedTransaction]  # the other tasks of its batch
    paused: dict[FailPoint, Halted]
    killed: dict[FailPoint, Work]
    foreign: list[PreparedState]
    beside_foreign: Work
    batch_write: Work
    batch_write_tasks: list[PreparedTransaction]
    decided_batch_write: Work


@pytest.fixture(scope="module", name="abandoned")
def _abandoned(
    broker: penstock.Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Abandoned]:
    home = tmp_path_factory.mktemp("abandoned")

    def new_work() -> Work:
        return work_on(broker)._replace(abandoned_after_ms=BOUND_MS)

    def pause_at(point: FailPoint) -> Halted:
        work = new_work()
        process = halt(work, point, home / work.query)
        process.send_signal(signal.SIGSTOP)
        return Halted(work, point, process, home / work.query)

    slow = SlowTask(new_work())
    killed = {point: new_work() for point in KILLS}
    for point, work in killed.items():
        halt_and_kill(work, point, home / point)
    beside_foreign = new_work()
    foreign = [prepare(beside_foreign, transactional_id) for transactional_id in FOREIGN]
    beside_foreign.write_all()
    batch_write, decided = (new_work()._replace(query=new_batch_query()) for _ in range(2))
    decide_only(decided, [transaction.state for transaction in decided.write_all()])
    abandoned = Abandoned(
        slow=slow,
        done=[slow.work.write(task) for task in range(1, slow.work.tasks)],
        paused={point: pause_at(point) for point in PAUSES},
        killed=killed,
        foreign=foreign,
        beside_foreign=beside_foreign,
        batch_write=batch_write,
        batch_write_tasks=batch_write.write_all(),
        decided_batch_write=decided,
    )
    yield abandoned
    for halted in abandoned.paused.values():
        halted.process.kill()
        halted.process.wait(PROCESS_TIMEOUT_S)
    end_all(broker, foreign)


def test_left_overs_of_killed_drivers_are_ended_as_they_were_decided(abandoned: Abandoned) -> None:
    for point, work in abandoned.killed.items():
        wait_until(lambda work=work: undecided(work) == 0)  # type: ignore[misc]
        assert settled(work) == (sorted(work.values()) if point in COMMITTED else [])


def test_transactions_that_are_not_the_sinks_are_never_ended(abandoned: Abandoned) -> None:
    work = abandoned.beside_foreign
    wait_until(lambda: undecided(work) == 0)
    assert describe_producers(work, FOREIGN) == [
        ("Ongoing", tuple(state)) for state in abandoned.foreign
    ]


def test_driver_that_was_paused_past_the_bound_is_fenced(abandoned: Abandoned) -> None:
    """What it wrote is aborted while it is stopped, and its next run writes it once."""
    paused = abandoned.paused[FailPoint.COMMIT_BEGUN]
    wait_until(lambda: undecided(paused.work) == 0)
    assert paused.resume() == 1
    assert AbortedByAnotherRun.__name__ in paused.errors
    assert settled(paused.work) == []
    again = paused.work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(again) == sorted(again.values())


@pytest.mark.skipif(not is_long(), reason="one more process: in `make verify`")
def test_decision_of_a_paused_driver_is_finished_without_it(abandoned: Abandoned) -> None:
    paused = abandoned.paused[FailPoint.DECIDED]
    wait_until(lambda: seen(paused.work) == sorted(paused.work.values()))
    assert paused.resume() == 0, paused.errors
    assert settled(paused.work) == sorted(paused.work.values())


def test_batch_write_that_was_taken_for_dead_cannot_commit_a_part(abandoned: Abandoned) -> None:
    work = abandoned.batch_write
    wait_until(lambda: undecided(work) == 0)
    with pytest.raises(AbortedByAnotherRun):
        work.commit(abandoned.batch_write_tasks)
    assert settled(work) == []


def test_decided_batch_write_is_committed_by_the_broker(abandoned: Abandoned) -> None:
    work = abandoned.decided_batch_write
    wait_until(lambda: undecided(work) == 0)
    assert settled(work) == sorted(work.values())


def test_task_slower_than_the_bound_is_not_touched(abandoned: Abandoned) -> None:
    """Its process renews the query's lease, which also protects the tasks that are done."""
    slow = abandoned.slow
    renewals_in_two_bounds = 2 * BOUND_MS // renewal_interval_ms(BOUND_MS)
    wait_until(lambda: count_renewals(slow.work.servers, slow.work.query) >= renewals_in_two_bounds)
    slow.work.commit([slow.end(), *abandoned.done])
    assert settled(slow.work) == sorted(slow.work.values())


def prepare(work: Work, transactional_id: str) -> PreparedState:
    async def write(cluster: ClusterClient) -> PreparedState:
        transaction = await RawTransaction.begin(cluster, transactional_id, two_phase=True)
        batch = build_batch([Record(0, 0, None, b"foreign")])
        await transaction.write(TopicPartition(work.topic, 0), batch)
        prepared = await transaction.prepare()
        assert prepared is not None
        return prepared

    return shared_client(ClientSettings(work.servers)).run(write)


def describe_producers(work: Work, names: Sequence[str]) -> list[tuple[str, tuple[object, ...]]]:
    """The state and the producer of each transactional id."""

    async def describe(cluster: ClusterClient) -> list[tuple[str, tuple[object, ...]]]:
        described = [await cluster.transactions.describe(name) for name in names]
        return [(description.state, tuple(description.producer)) for description in described]

    return shared_client(ClientSettings(work.servers)).run(describe)


def end_all(broker: penstock.Broker, states: Sequence[PreparedState]) -> None:
    async def end(cluster: ClusterClient) -> None:
        for state in states:
            await cluster.transactions.end(state, commit=False)

    shared_client(ClientSettings(broker.bootstrap_servers)).run(end)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
