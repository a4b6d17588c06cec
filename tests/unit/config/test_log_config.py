"""The typed settings that storage receives."""

from math import inf

import pytest

from penstock.config.effective_config import resolve_broker, resolve_topic
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig


def _topic(**texts: str) -> LogConfig:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    overrides = RawConfig.from_mapping(named, where="topic t")
    return LogConfig.from_topic(resolve_topic(overrides, resolve_broker()))


def test_defaults_of_fields_equal_those_of_the_settings() -> None:
    broker = resolve_broker()
    assert LogConfig.from_topic(resolve_topic(EMPTY_RAW_CONFIG, broker)) == LogConfig()
    assert StorageConfig.from_broker(broker) == StorageConfig()


@pytest.mark.parametrize(
    ("policy", "delete", "compact"),
    [
        ("delete", True, False),
        ("compact", False, True),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_the_cleanup_policy_is_a_set(policy: str, delete: bool, compact: bool) -> None:
    config = _topic(cleanup_policy=policy)
    assert (config.delete, config.compact) == (delete, compact)


def test_a_topics_values_reach_their_fields() -> None:
    config = _topic(
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.25",
        message_timestamp_type="LogAppendTime",
    )
    assert config.segment_bytes == 1_048_576
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.message_timestamp_type == "LogAppendTime"


def test_a_brokers_values_reach_their_fields() -> None:
    texts = {
        "log.dir": "/data",
        "log.cleaner.io.max.bytes.per.second": "5000",
        "replica.high.watermark.checkpoint.interval.ms": "7",
    }
    config = StorageConfig.from_broker(resolve_broker(RawConfig.from_mapping(texts, where="test")))
    assert config.log_dirs == ("/data",)
    assert config.cleaner_io_max_bytes_per_second == 5000.0
    assert config.high_watermark_checkpoint_interval_ms == 7


@pytest.mark.parametrize("text", ["1.7976931348623157E308", "Infinity"])
def test_an_unlimited_cleaner_rate_is_infinity(text: str) -> None:
    given = RawConfig.from_mapping({"log.cleaner.io.max.bytes.per.second": text}, where="test")
    config = StorageConfig.from_broker(resolve_broker(given))
    assert config.cleaner_io_max_bytes_per_second == inf
