"""A driver's keeper against queries that start, run batches and stop in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.profile import scaled

from penstock.spark.sink.exactly_once.planned_batches import PlannedBatches, QueryRun
from penstock.spark.sink.exactly_once.stream_threads import StreamThread

QUERIES = 3


class Query:
    """One run of a query in the driver. The keeper does not see its thread's owner."""

    def __init__(self, run: QueryRun, thread: StreamThread) -> None:
        self.run = run
        self.thread = thread
        self.plan: str | None = None  # of the batch that runs
        self.is_introduced = False
        self.checks = 0  # since then


class DriverMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.batches = PlannedBatches()
        self.running: dict[str, Query] = {}
        self.ended_threads: set[StreamThread] = set()
        self.numbers = iter(range(1_000_000))
        self.alive: list[str] = []

    @property
    def threads(self) -> frozenset[StreamThread]:
        return frozenset(query.thread for query in self.running.values())

    @rule(number=st.integers(0, QUERIES - 1))
    def start(self, number: int) -> None:
        name = f"query-{number}"
        if name not in self.running:
            run = QueryRun(name, f"run-{next(self.numbers)}")
            self.running[name] = Query(run, StreamThread(next(self.numbers), 1))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        query = self._choose(data)
        if query.plan is None:
            query.plan, query.is_introduced, query.checks = f"plan-{next(self.numbers)}", False, 0
            self.batches.plan(query.plan, self.threads)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def introduce(self, data: st.DataObject) -> None:
        query = self._choose(data)
        if query.plan is not None:
            query.is_introduced = True
            self.batches.introduce(query.plan, query.run)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end_batch(self, data: st.DataObject) -> None:
        query = self._choose(data)
        if query.plan is not None:
            self.batches.end(query.plan, query.run)
            query.plan = None

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_introduced_late=st.booleans())
    def stop(self, data: st.DataObject, is_introduced_late: bool) -> None:
        query = self._choose(data)
        del self.running[query.run.query]
        self.ended_threads.add(query.thread)
        if query.plan is not None and is_introduced_late:  # by a task that was not killed yet
            self.batches.introduce(query.plan, query.run)

    @rule()
    def check(self) -> None:
        self.alive = self.batches.check(self.threads)
        for query in self.running.values():
            query.checks += 1
        self._check_all()

    def _check_all(self) -> None:
        for name in self.alive:
            assert name in self.running, "its thread has ended"
            assert self.running[name].plan is not None, "it has no batch"
        if not self.ended_threads:
            assert self.alive == sorted(
                name
                for name, query in self.running.items()
                if query.plan is not None and query.is_introduced and query.checks > 1
            )

    @invariant()
    def due_only_with_batches(self) -> None:
        if not any(query.plan for query in self.running.values()) and not self.ended_threads:
            assert not self.batches.has_due

    def _choose(self, data: st.DataObject) -> Query:
        return self.running[data.draw(st.sampled_from(sorted(self.running)))]


TestDriver = DriverMachine.TestCase
TestDriver.settings = settings(
    max_examples=scaled(test=60, verify=2_000, release=2_000),
    stateful_step_count=30,
    deadline=None,
)


def thread(number: int) -> StreamThread:
    return StreamThread(number, 1)


def keeper_of_a_long_batch(*plans: set[StreamThread]) -> PlannedBatches:
    """A query whose batches were planned beside these threads; the last one runs."""
    batches, run = PlannedBatches(), QueryRun("query", "run")
    for number, threads in enumerate(plans):
        batches.plan(f"plan-{number}", frozenset(threads))
        if number < len(plans) - 1:
            batches.end(f"plan-{number}", run)
    batches.introduce(f"plan-{len(plans) - 1}", run)
    batches.check(plans[-1])
    return batches


def test_end_of_a_query_that_began_later_proves_nothing() -> None:
    batches = keeper_of_a_long_batch({thread(1)}, {thread(1), thread(2)})
    assert batches.check({thread(1)}) == ["query"]


def test_end_of_a_query_that_may_be_this_one_counts_as_its_end() -> None:
    batches = keeper_of_a_long_batch({thread(1), thread(2)}, {thread(1), thread(2)})
    assert batches.check({thread(1), thread(2)}) == ["query"]
    assert batches.check({thread(1)}) == []
    assert batches.check({thread(1)}) == []


def test_next_batch_after_the_end_of_another_query_is_protected_again() -> None:
    batches, run = keeper_of_a_long_batch({thread(1), thread(2)}), QueryRun("query", "run")
    assert batches.check({thread(1)}) == []
    batches.end("plan-0", run)
    batches.plan("next", frozenset({thread(1)}))
    batches.introduce("next", run)
    batches.check({thread(1)})
    assert batches.check({thread(1)}) == ["query"]


def test_plans_whose_end_nobody_reports_do_not_accumulate() -> None:
    batches = PlannedBatches()
    for number in range(5_000):
        batches.plan(f"plan-{number}", frozenset({thread(1)}))
    batches.check({thread(1)})
    assert batches.has_due
    batches.check({thread(2)})
    assert not batches.has_due
