"""What is due, in order, from heap and runs; the runs keep later hours out of memory."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinators.deferred.runs import MemoryRuns

from penstock.coordinators.deferred.due_index import HOUR_MS, DueEntry, DueIndex
from penstock.coordinators.deferred.pending_numbers import PendingNumbers
from penstock.coordinators.deferred.values import Target
from penstock.model.ids import TopicId

TARGETS = [Target(TopicId(UUID(int=number)), number) for number in range(3)]
START_MS = 500_000 * HOUR_MS + 1234


def entry(due_ms: int, number: int) -> DueEntry:
    return DueEntry(due_ms, number, 1_000 + number, 10 * number, TARGETS[number % 3])


@given(
    delays_ms=st.lists(st.integers(-HOUR_MS, 10 * HOUR_MS), max_size=40),
    waits_ms=st.lists(st.integers(0, 4 * HOUR_MS), max_size=8),
)
def test_everything_is_taken_once_when_it_is_due(delays_ms: list[int], waits_ms: list[int]) -> None:
    index, now_ms = DueIndex(MemoryRuns()), START_MS
    waiting = [entry(now_ms + delay_ms, number) for number, delay_ms in enumerate(delays_ms)]
    for added in waiting:
        index.add(added)
    assert len(index) == len(waiting)
    for wait_ms in [*waits_ms, 20 * HOUR_MS]:
        now_ms += wait_ms
        due = sorted(item for item in waiting if item.due_ms <= now_ms)
        waiting = [item for item in waiting if item.due_ms > now_ms]
        assert list(index.take_due(now_ms)) == due
        assert len(index) == len(waiting)
        next_ms = index.next_due_ms()
        if waiting:
            assert next_ms is not None
            assert next_ms <= min(waiting).due_ms
    assert index.next_due_ms() is None


@given(
    delays_ms=st.lists(st.integers(-2 * HOUR_MS, 3 * HOUR_MS), max_size=40),
    limit=st.integers(1, 7),
)
def test_slices_keep_the_order_and_leave_nothing_out(delays_ms: list[int], limit: int) -> None:
    index = DueIndex(MemoryRuns())
    waiting = [entry(START_MS + delay_ms, number) for number, delay_ms in enumerate(delays_ms)]
    for added in waiting:
        index.add(added)
    taken: list[DueEntry] = []
    for now_ms in (START_MS, START_MS + HOUR_MS, START_MS + 4 * HOUR_MS):
        while (next_ms := index.next_due_ms()) is not None and next_ms <= now_ms:
            some = list(index.take_due(now_ms, limit))
            assert len(some) <= limit
            taken += some
        assert taken == sorted(item for item in waiting if item.due_ms <= now_ms)
        assert len(index) == len(waiting) - len(taken)


def test_later_hours_are_stored_and_not_kept() -> None:
    runs = MemoryRuns()
    index = DueIndex(runs)
    assert list(index.take_due(START_MS)) == []
    count = 10_000
    for number in range(count):
        index.add(entry(START_MS + 30 * HOUR_MS + count - number, number))
    stored = sum(map(len, runs.by_hour.values()))
    assert stored > 0.7 * count * 32
    assert list(index.take_due(START_MS + 28 * HOUR_MS)) == []
    assert sum(map(len, runs.by_hour.values())) == stored, "the hour is not near yet"
    due = list(index.take_due(START_MS + 31 * HOUR_MS))
    assert [item.number for item in due] == list(reversed(range(count)))
    assert not runs.by_hour


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30_000)), max_size=60))
def test_pending_numbers_are_a_set(steps: list[tuple[bool, int]]) -> None:
    pending, model = PendingNumbers(), set[int]()
    for is_added, number in steps:
        if is_added:
            pending.add(number)
            model.add(number)
        else:
            pending.discard(number)
            model.discard(number)
        assert len(pending) == len(model)
        assert (number in pending) == (number in model)
    assert all(number in pending for number in model)
    for number in list(model):
        pending.discard(number)
    assert not pending._blocks, "no memory is left behind"
