"""Drivers of one query, some of them thought dead, decide and end at the same time, step by step,
and are killed anywhere: each batch is committed once and whole. One that is alone may go on after a
failed commit, as a user's function does that ignores errors: then a batch that was not decided may
be missing, but none in part."""

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
    """A later driver has begun."""


class TroubleError(Exception):
    """The cluster cannot be reached for a while."""


class Cluster:
    """What brokers keep: decisions, who may write them, and transactions."""

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

    def still_open(self) -> list[TransactionalProducerId]:
        return [each for each, state in self.states.items() if state == "open"]

    def fence(self) -> int:
        self.epoch += 1
        return self.epoch

    def last(self) -> CommitDecision | None:
        return self.decisions[-1] if self.decisions else None

    def write(self, decision: CommitDecision, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError
        self.decisions.append(decision)

    def end(self, each: TransactionalProducerId, state: str) -> None:
        """As a coordinator does: the same again is no error, and who aborts ignores errors."""
        if state == "committed":
            assert self.states[each] != "aborted", f"{each} was to be committed and is lost"
        if self.states[each] == "open":
            self.states[each] = state


@dataclass
class Spark:
    """Its log of batches that were done; drivers share the checkpoint."""

    cluster: Cluster = field(default_factory=Cluster)
    done: int = -1
    skipped: set[int] = field(default_factory=set)  # batches that a driver has not seen committed
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
            except TroubleError:
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

    def commit(self, asked: PreparedBatch) -> Steps:
        epoch, last, found = yield from self.begin()
        still_open = dict.fromkeys([*found, *asked.prepared])
        yield from self.carry_out(plan_commit(last, asked, still_open), epoch)

    def recover(self) -> Steps:
        epoch, last, found = yield from self.begin()
        try:
            yield from self.carry_out(plan_recovery(last, found), epoch)
        except (FencedError, TroubleError):
            return
        assert not set(found) & set(self.cluster.still_open())

    def begin(
        self,
    ) -> Generator[None, None, tuple[int, CommitDecision | None, list[TransactionalProducerId]]]:
        epoch = self.cluster.fence()
        yield
        last = self.cluster.last()
        yield
        found = self.cluster.still_open()
        yield
        return epoch, last, found

    def carry_out(self, follows: CommitPlan, epoch: int) -> Steps:
        if follows.is_new:
            self.cluster.write(follows.decision, epoch)
        yield
        # In any order, and this is the worst: what should not be aborted is lost.
        ends = [(abort, "aborted") for abort in follows.aborts]
        for each, state in [
            *ends,
            *((prepared_state, "committed") for prepared_state in follows.commits),
        ]:
            self.cluster.end(each, state)
            yield

    def advance(self, number: int, steps: int) -> None:
        for _ in range(steps):
            if next(self.runs[number], self) is self:
                del self.runs[number]
                return

    def trouble(self, number: int) -> None:
        try:
            self.runs[number].throw(TroubleError())
        except (TroubleError, StopIteration):
            del self.runs[number]


def check(spark: Spark, upto: int) -> None:
    cluster = spark.cluster
    assert not cluster.still_open()
    writers: dict[int, list[int]] = {}
    for each, state in cluster.states.items():
        run, batch = cluster.batches[each]
        if state == "committed" and batch >= 0:
            writers.setdefault(batch, []).append(run)
    decided = {decision.batch for decision in cluster.decisions}
    missing = set(range(upto + 1)) - writers.keys()
    assert missing <= spark.skipped - decided
    for batch, runs in writers.items():
        assert len(runs) == TASKS, f"batch {batch} was committed {len(runs)} times"
        assert len(set(runs)) == 1


# Drivers mostly go on.
KINDS = [*["advance"] * 9, "start", "start", "kill", "stray", "trouble"]
ACTIONS = st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 14))
HISTORIES = st.lists(ACTIONS, min_size=20, max_size=80)


@given(HISTORIES, st.booleans())
@settings(max_examples=scaled(test=150, verify=2_000, release=20_000), deadline=None)
def test_each_batch_is_committed_once_and_whole(
    actions: list[tuple[str, int, int]], is_swept: bool
) -> None:
    live_through(actions, is_swept=is_swept)


def live_through(actions: list[tuple[str, int, int]], *, is_swept: bool) -> None:
    """Then one more driver, alone, has to bring all to a good end, perhaps after another query has
    ended what was left."""
    spark = Spark()
    spark.start()
    for kind, which, steps in actions:
        running = sorted(spark.runs)
        if kind == "start" and len(running) < 4:
            spark.start()
        elif kind == "stray":  # of a task that was killed, or tried twice
            spark.cluster.open(-1, -1)
        elif running and kind == "advance":
            spark.advance(running[which % len(running)], steps)
        elif len(running) == 1 and kind == "trouble":
            spark.trouble(*running)
        elif running and kind == "kill":
            del spark.runs[running[which % len(running)]]
    spark.runs.clear()
    if is_swept:
        list(spark.recover())
        assert not spark.cluster.still_open()
    last, wanted = spark.start(), spark.done + 1
    while spark.done < wanted:
        assert last in spark.runs, "the only driver was refused"
        spark.advance(last, 1)
    check(spark, wanted)
