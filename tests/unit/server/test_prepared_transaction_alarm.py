"""Prepared transactions that wait long for their decision are reported, each once."""

from collections.abc import Callable

from tests.unit.apis.fake_transaction_coordinator import FakeTransactionCoordinator

from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    ListedTransactions,
    ListTransactions,
    TransactionSummary,
)
from penstock.logs.event_logger import message_logger
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.timing_wheel import Timer, TimingWheel
from penstock.server.prepared_transaction_alarm import CHECK_EVERY_MS, PreparedTransactionAlarm

HOUR_MS = 3_600_000
NOW_MS = 10 * HOUR_MS
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Timers:
    """Records timers; the test calls them."""

    def __init__(self) -> None:
        self.added: list[tuple[int, Callable[[], None]]] = []
        self._wheel: TimingWheel[Callable[[], None]] = TimingWheel(start_ms=0)

    def add_after(self, delay_ms: int, value: Callable[[], None]) -> Timer[Callable[[], None]]:
        self.added.append((delay_ms, value))
        return self._wheel.add(delay_ms, value)

    def cancel(self, timer: Timer[Callable[[], None]]) -> bool:
        raise AssertionError


class Harness:
    def __init__(self, age_ms: int = HOUR_MS) -> None:
        self.coordinator = FakeTransactionCoordinator()
        self.reports: list[str] = []
        self.timers = Timers()
        self.alarm = PreparedTransactionAlarm(
            self.coordinator,
            alarm_after_ms=lambda: age_ms,
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            logger=message_logger(self.reports.append),
        )

    def show(self, transactional_id: str, *, two_phase: bool, started_ms: int = 0) -> None:
        """Let the coordinator list this transaction from now on."""
        listed = TransactionSummary(transactional_id, 7, "Ongoing")
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


def test_a_prepared_transaction_is_reported_once() -> None:
    harness = Harness()
    harness.show("sink-0", two_phase=True)
    harness.alarm.check()
    harness.alarm.check()
    (report,) = harness.reports
    for words in ("sink-0", "producer 7", "600 min", "2 partitions", "penstock transaction abort"):
        assert words in report
    assert harness.coordinator.requests[0] == ListTransactions(
        states=frozenset({"Ongoing"}), min_duration_ms=HOUR_MS
    )


def test_the_next_transaction_of_the_same_id_is_reported_again() -> None:
    harness = Harness()
    for started_ms in (0, HOUR_MS):
        harness.show("sink-0", two_phase=True, started_ms=started_ms)
        harness.alarm.check()
    assert len(harness.reports) == 2


def test_a_transaction_without_two_phase_commit_is_not_reported() -> None:
    harness = Harness()
    harness.show("billing", two_phase=False)
    harness.alarm.check()
    assert harness.reports == []


def test_a_negative_alarm_time_disables_the_alarm() -> None:
    harness = Harness(age_ms=-1)
    harness.show("sink-0", two_phase=True)
    harness.alarm.check()
    assert (harness.reports, harness.coordinator.requests) == ([], [])


def test_the_alarm_checks_once_a_minute() -> None:
    harness = Harness()
    harness.show("sink-0", two_phase=True)
    harness.alarm.start()
    for number in range(2):
        delay_ms, check = harness.timers.added[number]
        assert delay_ms == CHECK_EVERY_MS
        check()
    assert len(harness.reports) == 1
