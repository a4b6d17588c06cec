"""What the controller logs about a decision: sums with reasons, and no secret."""

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from penstock.controller.change_events import (
    HIDDEN,
    MAX_NAMED,
    ChangeEvent,
    find_absent,
    list_changes,
)
from penstock.controller.state import ClusterState
from penstock.logs.levels import WARNING
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import LeaderEpoch, TopicId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)


def node(broker: BrokerId, epoch: int = 1) -> BrokerNode:
    return BrokerNode(id=broker, epoch=BrokerEpoch(epoch), endpoints=())


def partition(leader: BrokerId = ONE, in_sync: tuple[BrokerId, ...] = ALL) -> PartitionState:
    return PartitionState(leader, LeaderEpoch(1), ALL, in_sync)


def topic(*partitions: PartitionState, **configs: str) -> TopicState:
    return TopicState(
        name="orders", topic_id=TopicId(UUID(int=7)), partitions=partitions, configs=configs
    )


def cluster(*partitions: PartitionState, brokers: tuple[BrokerId, ...] = ALL) -> ClusterState:
    return ClusterState(
        controller_id=ONE,
        controller_epoch=ControllerEpoch(1),
        brokers={broker: node(broker) for broker in brokers},
        topics={"orders": topic(*partitions)},
    )


def changed(before: ClusterState, *partitions: PartitionState) -> ClusterState:
    return replace(before, topics={"orders": topic(*partitions)})


def names(events: list[ChangeEvent]) -> list[str]:
    return [event.event for event in events]


def test_a_broker_that_leaves_its_leaders_and_isrs_are_three_events_with_the_reason() -> None:
    before = cluster(*[partition()] * 50)
    without = {ONE: node(ONE), TWO: node(TWO)}
    after = replace(changed(before, *[partition(TWO, (ONE, TWO))] * 50), brokers=without)
    left, leaders, shrunk = list_changes(before, after, "broker 3 left")
    assert (left.event, left.fields["id"]) == ("broker_left", THREE)
    assert leaders.event == "leaders_changed"
    assert (leaders.fields["count"], leaders.fields["leaders"]) == (50, ["2:50"])
    assert shrunk.event == "isr_shrunk"
    assert (shrunk.fields["replicas"], shrunk.fields["count"]) == ([THREE], 50)
    assert shrunk.fields["reason"] == leaders.fields["reason"] == "broker 3 left"
    assert isinstance(shrunk.fields["partitions"], list)
    assert len(shrunk.fields["partitions"]) == MAX_NAMED


def test_a_new_broker_epoch_is_a_broker_that_joined() -> None:
    before = cluster()
    after = replace(before, brokers={**before.brokers, TWO: node(TWO, 9)})
    (joined,) = list_changes(before, after, "")
    assert (joined.event, joined.fields) == ("broker_joined", {"id": TWO, "broker_epoch": 9})


def test_a_leader_from_outside_the_isr_is_an_unclean_election() -> None:
    before = cluster(partition(NO_BROKER, (ONE,)))
    unclean, leaders, *isr = list_changes(before, changed(before, partition(TWO, (TWO,))), "asked")
    assert (unclean.event, unclean.level) == ("unclean_leader_election", WARNING)
    assert leaders.event == "leaders_changed"
    assert names(isr) == ["isr_shrunk", "isr_expanded"]


def test_partitions_that_lose_their_leader_are_counted_and_warned_of() -> None:
    before = cluster(partition(), partition())
    after = changed(before, partition(NO_BROKER, (ONE,)), partition())
    leaders = list_changes(before, after, "broker 1 left")[0]
    assert (leaders.level, leaders.fields["offline"], leaders.fields["leaders"]) == (WARNING, 1, [])


def test_an_isr_that_its_leader_proposed_is_left_to_the_leader() -> None:
    before = cluster(partition())
    after = changed(before, partition(in_sync=(ONE, TWO)))
    assert list_changes(before, after, "", is_of_leader=True) == []


def test_a_reassignment_is_logged_when_it_begins_changes_and_ends() -> None:
    plain = partition()
    moving = plain._replace(adding=(THREE,), removing=(TWO,))
    other = plain._replace(removing=(THREE,))
    steps = [cluster(step) for step in (plain, moving, other, plain)]
    events = [
        name for before, after in pairwise(steps) for name in names(list_changes(before, after, ""))
    ]
    assert events == ["reassignment_started", "reassignment_changed", "reassignment_finished"]


def test_config_events_hide_secrets_and_unknown_settings() -> None:
    before = cluster()
    configs = {
        "": {"ssl.keystore.password": "s3cret", "acme.token": "t0ken", "log.cleaner.threads": "2"},
        "1": {"listener.name.internal.sasl.jaas.config": "jaas"},
    }
    events = list_changes(before, replace(before, broker_configs=configs), "")
    assert names(events) == ["config_changed"] * 2
    assert all(secret not in str(events) for secret in ("s3cret", "t0ken", 'jaas"'))
    assert f"acme.token={HIDDEN}" in str(events[0].fields["set"])
    assert "log.cleaner.threads=2" in str(events[0].fields["set"])


def test_topic_configs_that_change_and_disappear_are_named() -> None:
    before = replace(cluster(), topics={"orders": topic(**{"retention.ms": "5"})})
    after = replace(before, topics={"orders": topic(**{"cleanup.policy": "compact"})})
    (event,) = list_changes(before, after, "")
    assert event.fields["set"] == ["cleanup.policy=compact"]
    assert event.fields["deleted"] == ["retention.ms"]


def test_brokers_that_partitions_count_on_but_that_are_gone_are_found() -> None:
    assert find_absent(cluster(partition(), brokers=(ONE, TWO))) == [THREE]
    assert find_absent(cluster(partition(NO_BROKER, (ONE,)))) == []
