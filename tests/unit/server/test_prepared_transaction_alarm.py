"""Transactions that wait for their decision are told of, each once."""

from collections.abc import Callable

from tests.unit.apis.transactions_twin import TransactionsTwin
from tests.unit.inter_broker.other_brokers import settings_of

from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    ListedTransactions,
    ListTransactions,
    TransactionListing,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.timing_wheel import Timer, TimingWheel
from penstock.server.prepared_transaction_alarm import LOOK_EVERY_MS, PreparedAlarm

HOUR_MS = 3_600_000
NOW_MS = 10 * HOUR_MS
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Timers:
    """Keeps what is added; a test calls it."""

    def __init__(self) -> None:
        self.added: list[tuple[int, Callable[[], None]]] = []
        self._wheel: TimingWheel[Callable[[], None]] = TimingWheel(start_ms=0)

    def add_after(self, delay_ms: int, value: Callable[[], None]) -> Timer[Callable[[], None]]:
        self.added.append((delay_ms, value))
        return self._wheel.add(delay_ms, value)

    def cancel(self, timer: Timer[Callable[[], None]]) -> bool:
        raise AssertionError


class Bench:
    def __init__(self, age_ms: int = HOUR_MS) -> None:
        self.coordinator = TransactionsTwin()
        self.reports: list[str] = []
        self.timers = Timers()
        self.alarm = PreparedAlarm(
            self.coordinator,
            settings=lambda: settings_of({"transaction.prepared.alarm.ms": str(age_ms)}),
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            report=self.reports.append,
        )

    def show(self, transactional_id: str, *, two_phase: bool, started_ms: int = 0) -> None:
        """It is what the coordinator lists from now on."""
        listed = TransactionListing(transactional_id, 7, "Ongoing")
        self.coordinator.listed = ListedTransactions(ErrorCode.NONE, (), (listed,))
        self.coordinator.described[transactional_id] = DescribedTransaction(
            transactional_id=transactional_id,
            code=ErrorCode.NONE,
            state="Ongoing",
            started_ms=started_ms,
            producer_id=7,
            producer_epoch=3,
            partitions=(P0, P1),
            is_two_phase=two_phase,
        )


def test_what_waits_for_its_decision_is_told_of_once() -> None:
    bench = Bench()
    bench.show("sink-0", two_phase=True)
    bench.alarm.look()
    bench.alarm.look()
    (told,) = bench.reports
    for words in ("sink-0", "producer 7", "600 min", "2 partitions", "penstock transaction abort"):
        assert words in told
    assert bench.coordinator.asked[0] == ListTransactions(
        states=frozenset({"Ongoing"}), min_duration_ms=HOUR_MS
    )


def test_the_next_transaction_of_the_same_id_is_another_one() -> None:
    bench = Bench()
    for started_ms in (0, HOUR_MS):
        bench.show("sink-0", two_phase=True, started_ms=started_ms)
        bench.alarm.look()
    assert len(bench.reports) == 2


def test_others_time_out_by_themselves() -> None:
    bench = Bench()
    bench.show("billing", two_phase=False)
    bench.alarm.look()
    assert bench.reports == []


def test_who_wants_no_alarm_gets_none() -> None:
    bench = Bench(age_ms=-1)
    bench.show("sink-0", two_phase=True)
    bench.alarm.look()
    assert (bench.reports, bench.coordinator.asked) == ([], [])


def test_it_looks_every_so_often() -> None:
    bench = Bench()
    bench.show("sink-0", two_phase=True)
    bench.alarm.start()
    for place in range(2):
        delay_ms, look = bench.timers.added[place]
        assert delay_ms == LOOK_EVERY_MS
        look()
    assert len(bench.reports) == 1
