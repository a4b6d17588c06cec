"""GroupConfig: the broker's settings for groups as a typed value, already validated.

Kafka's names and defaults, in milliseconds and bytes throughout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from penstock.config.group_settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from penstock.config.setting import INT_MAX

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """A field's default is the declared setting's default."""

    # Classic groups.
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT_MAX  # members per group
    initial_rebalance_delay_ms: int = 3000  # 0: the first member gets its reply at once
    new_member_join_timeout_ms: int = (
        300_000  # session of a member that has no id for heartbeats yet
    )
    max_pending_members: int = 10_000  # sent MEMBER_ID_REQUIRED (KIP-394), not joined yet

    # Memory, of both protocols.
    member_max_protocols: int = 1000
    member_max_bytes: int = 2 << 20
    group_max_bytes: int = 64 << 20
    coordinator_max_bytes: int = 256 << 20

    # Consumer groups (KIP-848).
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_max_size: int = INT_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range", "ceil-range")  # the default first
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000

    # Committed offsets and __consumer_offsets.
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5000
    offsets_load_buffer_bytes: int = 5_242_880
    offsets_topic_partitions: int = 50
    offsets_topic_compression_codec: int = 0
    offsets_storage: str = "kafka"  # or "zookeeper"
    dual_commit_enabled: bool = False  # commits go to both
    max_record_bytes: int = 1_048_588  # of a batch of __consumer_offsets

    # Group -> its own settings, validated by the controller, for groups that have some.
    by_group: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def for_group(self, name: str) -> "GroupConfig":
        """With the group's own settings, where it has some."""
        own = self.by_group.get(name)
        if not own:
            return self
        fields = {_GROUP_NAMES[setting]: int(text) for setting, text in own.items()}
        return replace(self, **fields)  # type: ignore[arg-type]

    @classmethod
    def from_broker(cls, config: Mapping[str, Any]) -> Self:
        """Read the broker's effective config: setting name -> typed value, all present."""
        picked = {field: config[name] for field, name in _SOURCE_NAMES.items()}
        return cls(
            **picked,
            consumer_assignors=tuple(config["group.consumer.assignors"]),
            consumer_migration_policy=config["group.consumer.migration.policy"].lower(),
            offsets_retention_ms=config["offsets.retention.minutes"] * _MINUTE_MS,
            offsets_storage=config["offsets.storage"].lower(),
        )


_GROUP_NAMES: Mapping[str, str] = {
    SESSION_TIMEOUT_MS: "consumer_session_timeout_ms",
    HEARTBEAT_INTERVAL_MS: "consumer_heartbeat_interval_ms",
}
_SOURCE_NAMES: Mapping[str, str] = {
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "max_size": "group.max.size",
    "max_pending_members": "group.max.pending.members",
    "member_max_protocols": "group.member.max.protocols",
    "member_max_bytes": "group.member.max.bytes",
    "group_max_bytes": "group.max.bytes",
    "coordinator_max_bytes": "group.coordinator.max.bytes",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_max_size": "group.consumer.max.size",
    "consumer_regex_refresh_interval_ms": "group.consumer.regex.refresh.interval.ms",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
    "offsets_commit_timeout_ms": "offsets.commit.timeout.ms",
    "offsets_load_buffer_bytes": "offsets.load.buffer.size",
    "offsets_topic_partitions": "offsets.topic.num.partitions",
    "offsets_topic_compression_codec": "offsets.topic.compression.codec",
    "dual_commit_enabled": "dual.commit.enabled",
    "max_record_bytes": "message.max.bytes",
}
