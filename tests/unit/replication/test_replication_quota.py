"""Throttled replicas of a broker: what a leader holds back, what a follower does not ask for."""

from tests.unit.replication.stage import ME, OTHER, P0, P1, THIRD, Stage
from tests.unit.replication.test_follower_state import answer, batches

from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.replication.follower_state import HELD_MS

ALL = (ME, OTHER, THIRD)
LEADER = "leader.replication.throttled"
FOLLOWER = "follower.replication.throttled"


def leader(replicas: str, rate: int = 1000) -> Stage:
    """Broker 1 leads; broker 2 is in sync, broker 3 is not."""
    stage = Stage(broker={f"{LEADER}.rate": str(rate)})
    stage.tell_topic("orders", 3, **{f"{LEADER}.replicas".replace(".", "_"): replicas})
    stage.order(P0, P1, replicas=ALL, in_sync=(ME, OTHER))
    return stage


def holds_back(stage: Stage, name: TopicPartition = P0, follower: BrokerId = THIRD) -> bool:
    return stage.replicas.quota.holds_back(stage.partition(name), follower)


def test_a_leader_holds_back_who_is_behind_once_the_budget_is_spent() -> None:
    stage = leader("0:1")
    assert not holds_back(stage)
    stage.replicas.quota.note_sent(stage.partition(P0), 3000)
    assert holds_back(stage)
    stage.clock.advance_ms(2001)
    assert not holds_back(stage)


def test_who_is_in_sync_and_what_is_not_named_is_never_held_back() -> None:
    stage = leader("0:1")
    stage.replicas.quota.note_sent(stage.partition(P1), 1 << 30)
    assert not holds_back(stage)
    stage.replicas.quota.note_sent(stage.partition(P0), 1 << 30)
    assert holds_back(stage)
    assert not holds_back(stage, follower=OTHER)
    assert not holds_back(stage, P1)


def test_a_star_names_every_partition_and_its_end_is_the_end_of_it() -> None:
    stage = leader("*")
    stage.replicas.quota.note_sent(stage.partition(P1), 1 << 30)
    assert holds_back(stage)
    stage.tell_topic("orders", 3)
    assert not holds_back(stage)


def follower(replicas: str, rate: int) -> Stage:
    """Broker 1 follows broker 2, and has nothing yet."""
    stage = Stage(broker={f"{FOLLOWER}.rate": str(rate)})
    stage.tell_topic("orders", 3, **{f"{FOLLOWER}.replicas".replace(".", "_"): replicas})
    stage.order(P0, P1, leader=OTHER, replicas=(ME, OTHER), in_sync=(OTHER,))
    return stage


def wanted(stage: Stage) -> list[TopicPartition]:
    return [each.partition for each in stage.replicas.follower_state.list_wanted(OTHER)]


def fetch(stage: Stage, *, high_watermark: int) -> None:
    """One record of partition 0."""
    asked = stage.replicas.follower_state.list_wanted(OTHER)[0]
    assert asked.partition == P0
    records = batches(0, start=asked.offset)
    fetched = answer(records=records, high_watermark=high_watermark)
    stage.replicas.follower_state.take(OTHER, asked, fetched)


def test_a_follower_does_not_ask_for_more_than_it_may_have() -> None:
    stage = follower("0:1", rate=10)
    fetch(stage, high_watermark=5)
    assert wanted(stage) == [P1]
    due_ms = stage.replicas.follower_state.next_due_ms(OTHER)
    assert due_ms == stage.clock.now_ms() + HELD_MS  # the rate may be another by then
    stage.clock.advance_ms(60_000)
    assert wanted(stage) == [P0, P1]


def test_a_follower_that_has_caught_up_is_not_throttled() -> None:
    stage = follower("*", rate=1)
    fetch(stage, high_watermark=2)
    assert wanted(stage) == []
    stage.clock.advance_ms(1_000_000)
    fetch(stage, high_watermark=2)
    assert wanted(stage)[0] == P0


def test_a_follower_that_is_not_named_is_not_throttled() -> None:
    stage = follower("0:2,1:1", rate=0)
    fetch(stage, high_watermark=5)
    assert wanted(stage) == [P0]
