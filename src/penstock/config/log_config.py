"""Typed configs of storage: a LogConfig per topic, a StorageConfig per broker.

Plain values, checked already. A field's default is always the declared setting's default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar, Literal, Self

from penstock.config.setting import DOUBLE_MAX, LONG_MAX

# Any topic takes batches that expand this much: a larger max.message.bytes allows more.
_LEAST_RATIO = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How the logs of one topic roll, flush, expire and compact."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1  # -1: no limit
    retention_ms: int = 604_800_000  # -1: no limit
    max_message_bytes: int = 1_048_588
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    penstock_validate_records: bool = True
    penstock_max_decompressed_bytes: int = 33_554_432
    penstock_delay_ms: int = 0  # consumers read a record once it is this old; 0: at once
    penstock_delayed_messages: bool = False  # headers may delay a record
    penstock_half_groups: tuple[str, ...] = ()  # whose halves it takes

    SOURCE_NAMES: ClassVar[Mapping[str, str]]  # field -> the topic setting it is read from

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def uncompacted_ms(self) -> int:
        """The age below which records are not compacted: those that consumers have not seen yet
        are not."""
        return max(self.min_compaction_lag_ms, self.penstock_delay_ms)

    @property
    def decompression_limit_bytes(self) -> int:
        """The largest decompressed size of a produced batch, bounded because decompression blocks
        the event loop."""
        return max(self.penstock_max_decompressed_bytes, _LEAST_RATIO * self.max_message_bytes)

    @classmethod
    def from_topic(cls, config: Mapping[str, Any]) -> Self:
        """Reads a topic's effective config, which has every setting."""
        picked = {field: config[name] for field, name in cls.SOURCE_NAMES.items()}
        return cls(**{**picked, "cleanup_policy": frozenset(picked["cleanup_policy"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """How one broker's storage recovers, checks and cleans, regardless of the topic."""

    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)  # noqa: S108 (Kafka's own default)
    retention_check_interval_ms: int = 300_000
    recovery_checkpoint_interval_ms: int = 60_000
    start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    cleaner_enable: bool = True
    cleaner_dedupe_buffer_bytes: int = 134_217_728
    cleaner_io_buffer_bytes: int = 524_288
    cleaner_io_max_bytes_per_second: float = inf
    cleaner_backoff_ms: int = 15_000
    producer_id_expiration_ms: int = 86_400_000
    engine: str = "segmented"
    commit_log_file_bytes: int = 1_073_741_824  # of the commit log engine, like the next
    commit_log_min_live_ratio: float = 0.25  # a file with no more is emptied and removed

    SOURCE_NAMES: ClassVar[Mapping[str, str]]  # field -> the broker setting it is read from

    @classmethod
    def from_broker(cls, config: Mapping[str, Any]) -> Self:
        """Reads a broker's effective config, which has every setting."""
        names = cls.SOURCE_NAMES.items()
        picked = {field: config[name] for field, name in names}
        # Kafka says "no limit" with the largest double; here that is infinity.
        if picked["cleaner_io_max_bytes_per_second"] >= DOUBLE_MAX:
            picked["cleaner_io_max_bytes_per_second"] = inf
        return cls(**picked)


# A topic setting's field is its name with underscores, always.
LogConfig.SOURCE_NAMES = {field.name: field.name.replace("_", ".") for field in fields(LogConfig)}
StorageConfig.SOURCE_NAMES = {
    "log_dirs": "log.dirs",
    "retention_check_interval_ms": "log.retention.check.interval.ms",
    "recovery_checkpoint_interval_ms": "log.flush.offset.checkpoint.interval.ms",
    "start_offset_checkpoint_interval_ms": "log.flush.start.offset.checkpoint.interval.ms",
    "high_watermark_checkpoint_interval_ms": "replica.high.watermark.checkpoint.interval.ms",
    "cleaner_enable": "log.cleaner.enable",
    "cleaner_dedupe_buffer_bytes": "log.cleaner.dedupe.buffer.size",
    "cleaner_io_buffer_bytes": "log.cleaner.io.buffer.size",
    "cleaner_io_max_bytes_per_second": "log.cleaner.io.max.bytes.per.second",
    "cleaner_backoff_ms": "log.cleaner.backoff.ms",
    "producer_id_expiration_ms": "producer.id.expiration.ms",
    "engine": "storage.engine",
    "commit_log_file_bytes": "storage.commitlog.file.bytes",
    "commit_log_min_live_ratio": "storage.commitlog.min.live.ratio",
}
