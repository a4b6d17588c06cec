"""Replication quotas of a broker, as leader and as follower."""

from tests.unit.replication.harness import ME, OTHER, P0, P1, THIRD, ReplicationHarness
from tests.unit.replication.test_follower_state import answer, batches

from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.replication.follower_state import RECHECK_MS

ALL = (ME, OTHER, THIRD)
LEADER = "leader.replication.throttled"
FOLLOWER = "follower.replication.throttled"


def leader(replicas: str, rate: int = 1000) -> ReplicationHarness:
    """Broker 1 is leader; broker 2 is in sync, broker 3 is not."""
    harness = ReplicationHarness(broker={f"{LEADER}.rate": str(rate)})
    harness.update_topic("orders", 3, **{f"{LEADER}.replicas".replace(".", "_"): replicas})
    harness.leader_and_isr(P0, P1, replicas=ALL, in_sync=(ME, OTHER))
    return harness


def holds_back(
    harness: ReplicationHarness, name: TopicPartition = P0, follower: BrokerId = THIRD
) -> bool:
    return harness.replicas.quota.holds_back(harness.partition(name), follower)


def test_a_leader_throttles_a_lagging_follower_once_the_budget_is_spent() -> None:
    harness = leader("0:1")
    assert not holds_back(harness)
    harness.replicas.quota.note_sent(harness.partition(P0), 3000)
    assert holds_back(harness)
    harness.clock.advance_ms(2001)
    assert not holds_back(harness)


def test_in_sync_and_unlisted_replicas_are_never_throttled() -> None:
    harness = leader("0:1")
    harness.replicas.quota.note_sent(harness.partition(P1), 1 << 30)
    assert not holds_back(harness)
    harness.replicas.quota.note_sent(harness.partition(P0), 1 << 30)
    assert holds_back(harness)
    assert not holds_back(harness, follower=OTHER)
    assert not holds_back(harness, P1)


def test_a_star_throttles_every_partition_until_it_is_removed() -> None:
    harness = leader("*")
    harness.replicas.quota.note_sent(harness.partition(P1), 1 << 30)
    assert holds_back(harness)
    harness.update_topic("orders", 3)
    assert not holds_back(harness)


def follower(replicas: str, rate: int) -> ReplicationHarness:
    """Broker 1 follows broker 2, with an empty log."""
    harness = ReplicationHarness(broker={f"{FOLLOWER}.rate": str(rate)})
    harness.update_topic("orders", 3, **{f"{FOLLOWER}.replicas".replace(".", "_"): replicas})
    harness.leader_and_isr(P0, P1, leader=OTHER, replicas=(ME, OTHER), in_sync=(OTHER,))
    return harness


def wanted(harness: ReplicationHarness) -> list[TopicPartition]:
    return [fetch_from.tp for fetch_from in harness.replicas.follower_state.list_wanted(OTHER)]


def fetch(harness: ReplicationHarness, *, high_watermark: int) -> None:
    """Fetch one record of partition 0."""
    requested = harness.replicas.follower_state.list_wanted(OTHER)[0]
    assert requested.tp == P0
    records = batches(0, start=requested.offset)
    fetched = answer(records=records, high_watermark=high_watermark)
    harness.replicas.follower_state.apply(OTHER, requested, fetched)


def test_a_follower_does_not_fetch_beyond_its_budget() -> None:
    harness = follower("0:1", rate=10)
    fetch(harness, high_watermark=5)
    assert wanted(harness) == [P1]
    due_ms = harness.replicas.follower_state.next_due_ms(OTHER)
    assert due_ms == harness.clock.now_ms() + RECHECK_MS  # because the rate may change
    harness.clock.advance_ms(60_000)
    assert wanted(harness) == [P0, P1]


def test_a_follower_that_has_caught_up_is_not_throttled() -> None:
    harness = follower("*", rate=1)
    fetch(harness, high_watermark=2)
    assert wanted(harness) == []
    harness.clock.advance_ms(1_000_000)
    fetch(harness, high_watermark=2)
    assert wanted(harness)[0] == P0


def test_an_unlisted_follower_is_not_throttled() -> None:
    harness = follower("0:2,1:1", rate=0)
    fetch(harness, high_watermark=5)
    assert wanted(harness) == [P0]


def test_a_leader_throttles_only_replicas_that_a_reassignment_adds() -> None:
    harness = ReplicationHarness(broker={"leader.reassignment.throttled.rate": "1000"})
    harness.update_topic("orders", 3)
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER), adding=(THIRD,))
    harness.leader_and_isr(P1, replicas=ALL, in_sync=(ME, OTHER))
    quota = harness.replicas.quota
    quota.note_sent(harness.partition(P0), 1 << 20, OTHER)
    quota.note_sent(harness.partition(P1), 1 << 20, THIRD)
    assert not holds_back(harness)
    quota.note_sent(harness.partition(P0), 3000, THIRD)
    assert holds_back(harness)
    assert not holds_back(harness, P1)
    assert not holds_back(harness, follower=OTHER)
    harness.clock.advance_ms(2001)
    assert not holds_back(harness)


def test_an_added_replica_does_not_fetch_beyond_its_budget() -> None:
    harness = ReplicationHarness(broker={"follower.reassignment.throttled.rate": "10"})
    harness.update_topic("orders", 3)
    harness.leader_and_isr(P0, leader=OTHER, replicas=(OTHER, ME), in_sync=(OTHER,), adding=(ME,))
    harness.leader_and_isr(P1, leader=OTHER, replicas=(OTHER, ME), in_sync=(OTHER,))
    fetch(harness, high_watermark=5)
    assert wanted(harness) == [P1]
    harness.clock.advance_ms(60_000)
    assert wanted(harness) == [P0, P1]
