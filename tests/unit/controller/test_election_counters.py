"""Elections are counted from the states before and after a decision."""

from tests.unit.controller.states import partition, topic

from penstock.controller.election_counters import ElectionCounters
from penstock.model.cluster import NO_BROKER, PartitionState

LED = partition(1, (1, 2), (1, 2, 3))
OFFLINE = partition(NO_BROKER, (1,), (1, 2, 3))


def count(old: PartitionState, new: PartitionState) -> tuple[int, int]:
    counters = ElectionCounters()
    counters.count({"t": topic("t", old)}, {"t": topic("t", new)})
    return counters.elections, counters.unclean


def test_a_leader_out_of_the_isr_is_clean() -> None:
    assert count(LED, partition(2, (2,), (1, 2, 3), epoch=5)) == (1, 0)


def test_a_leader_that_was_not_in_the_isr_is_unclean() -> None:
    assert count(OFFLINE, partition(3, (3,), (1, 2, 3), epoch=5)) == (1, 1)


def test_a_lost_leader_and_a_changed_isr_are_no_elections() -> None:
    assert count(LED, OFFLINE) == (0, 0)
    assert count(LED, partition(1, (1,), (1, 2, 3))) == (0, 0)


def test_new_topics_are_no_elections() -> None:
    counters = ElectionCounters()
    counters.count({}, {"t": topic("t", LED)})
    assert counters.elections == 0
