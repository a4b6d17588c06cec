"""TransactionConfig: the broker's settings for transactions as a typed value, already validated.

Kafka's names, and its defaults except for two-phase commit, in milliseconds and bytes throughout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """A field's default is the declared setting's default."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000  # between two sweeps for timed-out transactions
    expiry_interval_ms: int = 3_600_000  # between two sweeps for expired transactional ids
    two_phase_enabled: bool = True

    # __transaction_state
    topic_partitions: int = 50
    load_buffer_bytes: int = 5_242_880

    @classmethod
    def from_broker(cls, config: Mapping[str, Any]) -> Self:
        """Read the broker's effective config: setting name -> typed value, all present."""
        return cls(**{field: config[name] for field, name in _SOURCE_NAMES.items()})


_SOURCE_NAMES: Mapping[str, str] = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "id_expiration_ms": "transactional.id.expiration.ms",
    "abort_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "expiry_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "two_phase_enabled": "transaction.two.phase.commit.enable",
    "topic_partitions": "transaction.state.log.num.partitions",
    "load_buffer_bytes": "transaction.state.log.load.buffer.size",
}
