"""DeferredConfig: the broker's settings for deferred messages as a typed value. No behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredConfig:
    max_delay_ms: int = 30 * DAY_MS
    max_pending: int = 10_000_000  # messages of a shard
    max_delivery_messages: int = 500
    max_delivery_bytes: int = 512 * 1024
    ended_retention_ms: int = DAY_MS  # how long the end of a message with a delay id is known
    producer_expiration_ms: int = DAY_MS  # how long repeats of an idle producer are recognised
    forget_interval_ms: int = 60_000

    # half messages
    first_check_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_check_interval_ms: int = 960_000
    max_checks: int = 15
    max_held: int = 1_000_000  # records of halves of a shard
    decided_retention_ms: int = DAY_MS  # how long a late half or decision finds the first decision
    expired_retention_ms: int = 7 * DAY_MS  # how long an expired half can be revived

    # __penstock_deferred
    topic_partitions: int = 50
    load_buffer_bytes: int = 5_242_880

    @classmethod
    def from_broker(cls, config: Mapping[str, Any]) -> Self:
        """Read the broker's effective config: setting name -> typed value, all present."""
        return cls(**{field: config[name] for field, name in _SOURCE_NAMES.items()})


_SOURCE_NAMES: Mapping[str, str] = {
    "max_delay_ms": "penstock.delayed.max.ms",
    "max_pending": "penstock.delayed.max.pending",
    "ended_retention_ms": "penstock.delayed.ended.retention.ms",
    "producer_expiration_ms": "producer.id.expiration.ms",
    "first_check_ms": "penstock.half.first.check.ms",
    "check_interval_ms": "penstock.half.check.interval.ms",
    "max_check_interval_ms": "penstock.half.check.max.interval.ms",
    "max_checks": "penstock.half.max.checks",
    "max_held": "penstock.half.max.pending",
    "decided_retention_ms": "penstock.half.decided.retention.ms",
    "expired_retention_ms": "penstock.half.expired.retention.ms",
    "topic_partitions": "penstock.delayed.topic.num.partitions",
    "load_buffer_bytes": "penstock.delayed.topic.load.buffer.size",
}
