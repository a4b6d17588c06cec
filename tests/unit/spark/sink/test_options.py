"""Parsing of the sink's options."""

import pytest

from penstock.protocol.compression import Codec
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.options import parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
AT_LEAST_ONCE = {"delivery": "at-least-once"}


def test_defaults_are_exactly_once_and_acks_all() -> None:
    options = parse_sink_options(SERVERS)
    assert options.is_exactly_once
    assert (options.acks, options.topic, options.codec) == (-1, None, Codec.NONE)


@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks_below_all_need_at_least_once(acks: str) -> None:
    raw = SERVERS | {"kafka.acks": acks}
    with pytest.raises(SparkSourceError, match=r'remove this option, or .* "at-least-once"\)'):
        parse_sink_options(raw)
    options = parse_sink_options(raw | AT_LEAST_ONCE)
    assert (options.acks, options.is_exactly_once) == (int(acks), False)


@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_producer_options_are_taken_with_and_without_prefix(prefix: str) -> None:
    options_without_prefix = {
        "acks": "1",
        "compression.type": "ZSTD",
        "batch.size": "65536",
        "buffer.memory": "1000000",
        "delivery.timeout.ms": "9000",
        "max.block.ms": "0",
        "linger.ms": "5",
        "retries": "3",
    }
    options = parse_sink_options(
        SERVERS
        | AT_LEAST_ONCE
        | {"topic": "orders"}
        | {prefix + name: value for name, value in options_without_prefix.items()}
    )
    assert options.topic == "orders"
    assert (options.acks, options.codec, options.batch_bytes) == (1, Codec.ZSTD, 65536)
    assert options.buffer_bytes == 1_000_000
    assert (options.delivery_timeout_ms, options.topic_timeout_ms) == (9000, 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.acks", "2", "write one of all, -1, 1, 0"),
        ("delivery", "twice", "write one of at-least-once, exactly-once"),
        ("kafka.compression.type", "zip", "write one of none, gzip, snappy, lz4, zstd"),
        ("kafka.batch.size", "-1", "write a whole number, at least 0"),
        ("kafka.linger.ms", "soon", "write a whole number, at least 0"),
        ("kafka.buffer.memory", "0", "write a whole number, at least 1"),
        ("kafka.value.serializer", "Text", "values are written as the bytes they are"),
        ("kafka.transactional.id", "mine", "the sink names its transactions itself"),
        ("topic", "a/b", "use 1 to 249 of the characters"),
        ("topics", "orders", "topic?"),
        ("abandonedAfter", "1s", "write at least 5s"),
    ],
)
def test_invalid_option_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(SparkSourceError) as caught:
        parse_sink_options(SERVERS | {name: value})
    assert name in str(caught.value)
    assert value in str(caught.value)
    assert message in str(caught.value)
