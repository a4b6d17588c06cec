"""The configs that throttle reassignments, and their removal."""

from penstock.cli.throttled_reassignments import (
    ALL_BROKERS,
    COPY_RATES,
    RATES,
    restore,
    throttle,
    unthrottle,
)
from penstock.client.admin_values import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    DescribedConfigSource,
)
from penstock.model.admin import ConfigOperation

TOPIC = ConfigResource.topic("orders")


def test_a_throttle_is_a_rate_of_all_brokers_in_both_directions() -> None:
    assert throttle(500) == {ALL_BROKERS: [AlterConfigOp(name, "500") for name in COPY_RATES]}


def test_unthrottle_removes_every_throttle_config_also_of_kafkas_older_kind() -> None:
    changes = unthrottle(["orders"], [1, 2])
    brokers = {ConfigResource.broker(1), ConfigResource.broker(2)}
    assert set(changes) == {TOPIC, ALL_BROKERS, *brokers}
    assert {change.name for change in changes[ALL_BROKERS]} == set(COPY_RATES)
    for ops in changes.values():
        assert {change.operation for change in ops} == {ConfigOperation.DELETE}
    for broker in brokers:
        assert {change.name for change in changes[broker]} == {*COPY_RATES, *RATES}
    assert {change.name for change in changes[TOPIC]} == {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }


def described(name: str, value: str, source: DescribedConfigSource) -> ConfigEntry:
    return ConfigEntry(
        name=name, value=value, source=source, is_read_only=False, is_sensitive=False
    )


def test_the_end_of_a_throttle_restores_an_operators_rate_and_no_default() -> None:
    leader, follower = COPY_RATES
    changes = restore(
        [
            described(leader, "700", DescribedConfigSource.ALL_BROKERS),
            described(follower, "900", DescribedConfigSource.DEFAULT),
        ]
    )
    assert changes == {
        ALL_BROKERS: [
            AlterConfigOp(leader, "700"),
            AlterConfigOp(follower, None, ConfigOperation.DELETE),
        ]
    }
