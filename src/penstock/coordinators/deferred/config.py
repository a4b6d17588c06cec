"""DeferredConfig: the broker's settings for deferred messages as a typed value. No behaviour."""

from dataclasses import dataclass

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

    # __penstock_deferred
    topic_partitions: int = 50
    load_buffer_bytes: int = 5_242_880
