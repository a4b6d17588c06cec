"""Concurrent drivers of one query, some of them taken for dead, decide and end transactions step by
step and are killed anywhere: each batch is committed once and whole. A single driver may go on
after a failed commit, like a user's function that ignores errors: then an undecided batch may be
missing, but never in part."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.client.transaction_values import PreparedState, TransactionalProducerId
from penstock.spark.sink.exactly_once.two_phase_commit import (
    AbortedByAnotherRun,
    CommitDecision,
    CommitPlan,
    PreparedBatch,
    StaleBatch,
    plan_commit,
    plan_recovery,
)

TASKS = 3
Steps = Generator[None, None, None]


class FencedError(Exception):
    """A later driver has fenced this one."""


class UnreachableError(Exception):
    """The cluster is unreachable for a while."""


class Cluster:
    """The brokers' state: decisions, the epoch that may write them, and transactions."""

    def __init__(self) -> None:
        self.decisions: list[CommitDecision] = []
        self.epoch = 0
        self.states: dict[TransactionalProducerId, str] = {}
        self.batches: dict[TransactionalProducerId, tuple[int, int]] = {}  # run and batch
        self._ids = count()

    def open(self, run: int, batch: int) -> PreparedState:
        state = PreparedState(f"t{next(self._ids)}", 7, 0)
        self.states[state] = "open"
        self.batches[state] = run, batch
        return state

    def ongoing(self) -> list[TransactionalProducerId]:
        return [producer for producer, state in self.states.items() if state == "open"]

    def fence(self) -> int:
        self.epoch += 1
        return self.epoch

    def last(self) -> CommitDecision | None:
        return self.decisions[-1] if self.decisions else None

    def write(self, decision: CommitDecision, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError
        self.decisions.append(decision)

    def end(self, producer: TransactionalProducerId, state: str) -> None:
        """Like a coordinator: repeating is no error, and aborts ignore errors."""
        if state == "committed":
            assert self.states[producer] != "aborted", f"{producer} was to be committed and is lost"
        if self.states[producer] == "open":
            self.states[producer] = state


@dataclass
class Spark:
    """Spark's commit log; all drivers share the checkpoint."""

    cluster: Cluster = field(default_factory=Cluster)
    done: int = -1
    skipped: set[int] = field(
        default_factory=set
    )  # batches whose commit failed for a driver that continued
    runs: dict[int, Steps] = field(default_factory=dict)
    numbers: Iterable[int] = field(default_factory=count)

    def start(self) -> int:
        number = next(iter(self.numbers))
        self.runs[number] = self.run(number)
        return number

    def run(self, number: int) -> Steps:
        batch = self.done + 1
        while True:
            try:
                yield from self.write(number, batch)
            except UnreachableError:
                self.skipped.add(batch)
            except (FencedError, AbortedByAnotherRun, StaleBatch):
                yield from self.recover()
                return
            self.done = max(self.done, batch)
            yield
            batch += 1

    def write(self, number: int, batch: int) -> Steps:
        prepared = []
        for _ in range(TASKS):
            prepared.append(self.cluster.open(number, batch))
            yield
        yield from self.commit(PreparedBatch("q", batch, tuple(prepared)))

    def commit(self, batch: PreparedBatch) -> Steps:
        epoch, last, listed = yield from self.begin()
        ongoing = dict.fromkeys([*listed, *batch.transactions])
        yield from self.carry_out(plan_commit(last, batch, ongoing), epoch)

    def recover(self) -> Steps:
        epoch, last, ongoing = yield from self.begin()
        try:
            yield from self.carry_out(plan_recovery(last, ongoing), epoch)
        except (FencedError, UnreachableError):
            return
        assert not set(ongoing) & set(self.cluster.ongoing())

    def begin(
        self,
    ) -> Generator[None, None, tuple[int, CommitDecision | None, list[TransactionalProducerId]]]:
        epoch = self.cluster.fence()
        yield
        last = self.cluster.last()
        yield
        ongoing = self.cluster.ongoing()
        yield
        return epoch, last, ongoing

    def carry_out(self, plan: CommitPlan, epoch: int) -> Steps:
        if plan.is_new:
            self.cluster.write(plan.decision, epoch)
        yield
        # Any order is allowed; aborts first is the worst case, because a wrong abort loses data.
        ends = [(producer, "aborted") for producer in plan.aborts]
        for producer, state in [*ends, *((producer, "committed") for producer in plan.commits)]:
            self.cluster.end(producer, state)
            yield

    def advance(self, number: int, steps: int) -> None:
        for _ in range(steps):
            if next(self.runs[number], self) is self:
                del self.runs[number]
                return

    def disconnect(self, number: int) -> None:
        try:
            self.runs[number].throw(UnreachableError())
        except (UnreachableError, StopIteration):
            del self.runs[number]


def check(spark: Spark, upto: int) -> None:
    cluster = spark.cluster
    assert not cluster.ongoing()
    writers: dict[int, list[int]] = {}
    for producer, state in cluster.states.items():
        run, batch = cluster.batches[producer]
        if state == "committed" and batch >= 0:
            writers.setdefault(batch, []).append(run)
    decided = {decision.batch_id for decision in cluster.decisions}
    missing = set(range(upto + 1)) - writers.keys()
    assert missing <= spark.skipped - decided
    for batch, runs in writers.items():
        assert len(runs) == TASKS, f"batch {batch} was committed {len(runs)} times"
        assert len(set(runs)) == 1


# Drivers advance most of the time.
KINDS = [*["advance"] * 9, "start", "start", "kill", "stray", "disconnect"]
ACTIONS = st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 14))
HISTORIES = st.lists(ACTIONS, min_size=20, max_size=80)


@given(HISTORIES, st.booleans())
@settings(max_examples=scaled(test=150, verify=2_000, release=20_000), deadline=None)
def test_each_batch_is_committed_once_and_whole(
    actions: list[tuple[str, int, int]], is_swept: bool
) -> None:
    run_history(actions, is_swept=is_swept)


def run_history(actions: list[tuple[str, int, int]], *, is_swept: bool) -> None:
    """Runs one more driver alone, which must complete everything, perhaps after another query has
    ended the orphaned transactions."""
    spark = Spark()
    spark.start()
    for kind, which, steps in actions:
        running = sorted(spark.runs)
        if kind == "start" and len(running) < 4:
            spark.start()
        elif kind == "stray":  # the transaction of a task that was killed or retried
            spark.cluster.open(-1, -1)
        elif running and kind == "advance":
            spark.advance(running[which % len(running)], steps)
        elif len(running) == 1 and kind == "disconnect":
            spark.disconnect(*running)
        elif running and kind == "kill":
            del spark.runs[running[which % len(running)]]
    spark.runs.clear()
    if is_swept:
        list(spark.recover())
        assert not spark.cluster.ongoing()
    last, wanted = spark.start(), spark.done + 1
    while spark.done < wanted:
        assert last in spark.runs, "the only driver was rejected"
        spark.advance(last, 1)
    check(spark, wanted)
