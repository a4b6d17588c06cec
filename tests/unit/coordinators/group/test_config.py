"""GroupConfig agrees with the broker's settings."""

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.coordinators.group.config import GroupConfig


def test_defaults_equal_those_of_the_settings() -> None:
    assert GroupConfig.from_broker(resolve_broker()) == GroupConfig()


def test_set_values_are_converted_to_the_fields_units() -> None:
    given = {
        "group.initial.rebalance.delay.ms": "0",
        "group.max.size": "7",
        "group.consumer.assignors": "range",
        "group.consumer.migration.policy": "Upgrade",
        "offsets.retention.minutes": "2",
        "offsets.topic.num.partitions": "4",
        "message.max.bytes": "5000",
    }
    resolved = resolve_broker(RawConfig.from_mapping(given, where="here"))
    config = GroupConfig.from_broker(resolved)
    assert (config.initial_rebalance_delay_ms, config.max_size) == (0, 7)
    assert (config.consumer_assignors, config.consumer_migration_policy) == (("range",), "upgrade")
    assert config.offsets_retention_ms == 120_000
    assert (config.offsets_topic_partitions, config.max_record_bytes) == (4, 5000)
