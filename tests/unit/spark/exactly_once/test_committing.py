"""Tasks that prepare and drivers that decide, on a real broker and without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.unit.spark.exactly_once.sink_process import Work, read_committed

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, Isolation
from penstock.client.errors import Refused
from penstock.client.transaction_values import PreparedState
from penstock.model.ids import TopicPartition
from penstock.spark.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.exactly_once.committing import Decider, end_abandoned
from penstock.spark.exactly_once.decision_log import DecisionLog
from penstock.spark.exactly_once.decisions import (
    BatchIsOld,
    Decision,
    LostTransaction,
    Overruled,
)
from penstock.spark.exactly_once.halting import FOLDER_VARIABLE, POINTS_VARIABLE, Point
from penstock.spark.exactly_once.names import name_one_batch
from penstock.spark.exactly_once.reports import abort_batch, commit_batch
from penstock.spark.exactly_once.undecided import list_undecided

TIMEOUT_MS = 20_000
PROCESS_TIMEOUT_S = 60
pytestmark = pytest.mark.xdist_group("exactly-once sink")
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    config = {
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 2,
    }
    with penstock.Broker(config=config) as broker:
        yield broker


@pytest.fixture
def work(broker: penstock.Broker) -> Work:
    return work_on(broker)


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
    """When the markers of all that was ended are written: a coordinator answers before that."""
    client, partition = shared_client(ClientSettings(work.servers)), TopicPartition(work.topic, 0)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while len({end_offset(client, partition, each) for each in Isolation}) > 1:
        assert time.monotonic() < deadline, "undecided"
        time.sleep(0.01)
    return seen(work)


def end_offset(client: BlockingClient, partition: TopicPartition, isolation: Isolation) -> int:
    return client.list_offsets({partition: LATEST}, isolation=isolation)[partition].offset


def undecided(work: Work) -> int:
    client = shared_client(ClientSettings(work.servers))
    found = client.run(
        lambda cluster: list_undecided(cluster, query=work.query, timeout_ms=TIMEOUT_MS)
    )
    return len(found)


def read_last(work: Work) -> Decision | None:
    """As the next driver would find it."""

    async def read(cluster: ClusterClient) -> Decision | None:
        log = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        return log.read.last

    return shared_client(ClientSettings(work.servers)).run(read)


def test_rows_show_when_the_driver_has_committed_and_not_before(work: Work) -> None:
    prepared = work.write_all()
    assert not any(each.is_timed for each in prepared)
    assert seen(work) == []
    assert undecided(work) == 3
    work.commit(prepared)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_batches_follow_each_other_under_the_same_ids(work: Work) -> None:
    used = set()
    for batch in range(3):
        each = work._replace(batch=batch)
        prepared = each.write_all()
        used |= {one.state.transactional_id for one in prepared}
        each.commit(prepared)
    assert len(used) == work.tasks
    expected = [value for batch in range(3) for value in work._replace(batch=batch).values()]
    assert settled(work) == sorted(expected)


def test_of_two_attempts_of_a_task_the_one_that_reported_counts(work: Work) -> None:
    lost = work.write(0)
    prepared = work.write_all()
    assert lost.state not in [each.state for each in prepared]
    work.commit(prepared)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_a_batch_that_is_run_again_counts_once(work: Work) -> None:
    work.commit(work.write_all())
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_an_aborted_batch_leaves_nothing(work: Work) -> None:
    work.write_all()
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == []


def test_a_batch_that_was_decided_is_not_aborted_any_more(work: Work) -> None:
    """Spark asks for an abort when a commit has failed, however far it had come."""
    prepared = work.write_all()
    decide_only(work, [each.state for each in prepared])
    assert seen(work) == []
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def decide_only(work: Work, states: Sequence[PreparedState]) -> None:
    """A driver that dies right after."""

    async def write(cluster: ClusterClient) -> None:
        log = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await log.write(Decision(work.batch, tuple(states)), timeout_ms=TIMEOUT_MS)

    shared_client(ClientSettings(work.servers)).run(write)


def test_a_driver_that_comes_late_finishes_what_the_other_has_decided(work: Work) -> None:
    late, other = work.write_all(), work._replace(run="run-2")
    decide_only(work, [each.state for each in other.write_all()])
    work.commit(late)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_a_driver_that_was_given_up_cannot_commit(work: Work) -> None:
    work.commit(work.write_all())
    late = work._replace(batch=1)
    prepared = late.write_all()
    abort_batch(work.options, work.query, 1)
    with pytest.raises(Overruled):
        late.commit(prepared)
    assert settled(work) == sorted(work.values())


def test_a_decision_of_a_fenced_driver_is_refused(work: Work) -> None:
    async def decide_twice(cluster: ClusterClient) -> None:
        first = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await first.write(Decision(0, ()), timeout_ms=TIMEOUT_MS)

    with pytest.raises(Refused):
        shared_client(ClientSettings(work.servers)).run(decide_twice)
    assert read_last(work) is None


def test_an_older_checkpoint_is_refused(work: Work) -> None:
    later = work._replace(batch=5)
    later.commit(later.write_all())
    with pytest.raises(BatchIsOld):
        work.commit(work.write_all())
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == sorted(later.values())


def test_what_an_administrator_aborted_is_told_and_not_taken_for_done(work: Work) -> None:
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="its rows are missing"):
        work.commit(prepared)


def test_a_write_that_is_no_streams_leaves_no_decision_behind(work: Work) -> None:
    single = work._replace(query=name_one_batch())
    single.commit(single.write_all())
    assert settled(work) == sorted(work.values())
    assert read_last(single) is None


def test_a_task_without_rows_has_no_transaction(work: Work) -> None:
    commit_batch(work.options, work.query, 0, [None, None])
    assert read_last(work) == Decision(0, ())
    assert undecided(work) == 0


def test_dead_queries_are_finished_or_aborted_when_they_are_old_enough(work: Work) -> None:
    decided, dead = (work._replace(query=f"{work.query}-{name}") for name in ("decided", "dead"))
    decide_only(decided, [each.state for each in decided.write_all()])
    dead._replace(batch=7).write_all()
    assert seen(work) == []

    def sweep(older_than_ms: int) -> list[str]:
        client = shared_client(ClientSettings(work.servers))
        return client.run(
            lambda cluster: end_abandoned(
                Decider(cluster, work.servers, work.query, TIMEOUT_MS), older_than_ms=older_than_ms
            )
        )

    assert sweep(3_600_000) == []
    assert sweep(-1) == [dead.query, decided.query]
    assert undecided(dead) == undecided(decided) == 0
    assert settled(work) == sorted(work.values())


def test_a_driver_killed_at_every_point_writes_each_row_once(work: Work, tmp_path: Path) -> None:
    """Each run finds what the one before has left, and dies further on."""
    many = work._replace(tasks=12)
    for number, point in enumerate(Point):
        halt_and_kill(many._replace(run=f"run-{number}"), point, tmp_path / point)
    last = many._replace(run="last")
    last.commit(last.write_all())
    assert settled(work) == sorted(many.values())
    assert undecided(work) == 0


def halt_and_kill(work: Work, point: Point, folder: Path) -> None:
    name = f"{point}@{work.batch}"
    folder.mkdir()
    halts = {POINTS_VARIABLE: name, FOLDER_VARIABLE: str(folder)}
    process = subprocess.Popen(work.command(), env={**os.environ, **halts})
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while not (folder / name).exists():
        assert process.poll() is None, f"ended before {point}"
        assert time.monotonic() < deadline, point
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PROCESS_TIMEOUT_S) == -signal.SIGKILL


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[penstock.Broker]:
    """As Kafka is: without two-phase commit."""
    config = {
        "transaction.two.phase.commit.enable": "false",
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with penstock.Broker(config=config) as broker:
        yield broker


def test_without_two_phase_commit_a_batch_counts_once_too(plain_broker: penstock.Broker) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    assert all(each.is_timed for each in prepared)
    work.commit(prepared)
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_without_two_phase_commit_a_batch_that_took_too_long_is_not_decided(
    plain_broker: penstock.Broker,
) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="took longer than the cluster lets"):
        work.commit(prepared)
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == []
    assert undecided(work) == 0
