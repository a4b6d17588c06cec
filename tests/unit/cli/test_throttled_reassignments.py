"""The configs that throttle a reassignment, and their removal."""

from penstock.cli.throttled_reassignments import RATES, throttle, unthrottle
from penstock.client.admin_values import AlterConfigOp, Resource, ResourceKind
from penstock.model.admin import ConfigOperation
from penstock.model.ids import TopicPartition

TOPIC = Resource(ResourceKind.TOPIC, "orders")


def broker(number: int) -> Resource:
    return Resource(ResourceKind.BROKER, str(number))


def test_current_replicas_are_throttled_as_leaders_and_added_ones_as_followers() -> None:
    changes = throttle(
        TopicPartition("orders", 4), held_by=(1, 2), to=(2, 3), brokers=(1, 2, 3), rate=500
    )
    assert changes[TOPIC] == [
        AlterConfigOp("leader.replication.throttled.replicas", "4:1,4:2", ConfigOperation.APPEND),
        AlterConfigOp("follower.replication.throttled.replicas", "4:3", ConfigOperation.APPEND),
    ]
    for number in (1, 2, 3):
        assert changes[broker(number)] == [AlterConfigOp(name, "500") for name in RATES]


def test_a_reassignment_without_new_replicas_throttles_no_follower() -> None:
    changes = throttle(TopicPartition("orders", 0), held_by=(1, 2), to=(2,), brokers=(1,), rate=9)
    assert [change.name for change in changes[TOPIC]] == ["leader.replication.throttled.replicas"]


def test_unthrottle_removes_every_throttle_config() -> None:
    changes = unthrottle(["orders"], [1, 2])
    assert set(changes) == {TOPIC, broker(1), broker(2)}
    for ops in changes.values():
        assert {change.operation for change in ops} == {ConfigOperation.DELETE}
    assert {change.name for change in changes[broker(1)]} == set(RATES)
