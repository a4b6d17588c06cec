"""The sink's options, parsed: Kafka's producer configs, with or without the prefix `kafka.`.

Options that only tune Kafka's own producer (`linger.ms`, `retries`) are checked and have no effect,
because a task has all its rows at hand and a batch is retried until `delivery.timeout.ms`.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from penstock.model.ids import InvalidTopicName, check_topic_name
from penstock.protocol.compression import Codec
from penstock.spark.connect.connections import CLIENT_OPTIONS, ClientSettings, client_settings
from penstock.spark.errors import BadOption
from penstock.spark.option_values import RawOptions, pick
from penstock.spark.sink.exactly_once.lease import LEAST_ABANDONED_AFTER_MS

_Value = TypeVar("_Value")
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = {codec.name.lower(): codec for codec in Codec}
_UNSUPPORTED = {
    "key.serializer": "keys are written as the bytes they are",
    "value.serializer": "values are written as the bytes they are",
    "transactional.id": "the sink names its transactions itself",
    "interceptor.classes": "there is no Java producer to intercept",
    "partitioner.class": "give the rows a column `partition` instead",
}
_WITHOUT_EFFECT = ("linger.ms", "retries")
_KAFKA_OPTIONS = (
    *("acks", "compression.type", "batch.size", "buffer.memory", "delivery.timeout.ms"),
    *("max.block.ms", "transaction.timeout.ms", *_WITHOUT_EFFECT, *CLIENT_OPTIONS),
)
_SINK_OPTIONS = ("topic", "delivery", "abandonedAfter", "oncePerMicroBatch")


class DeliveryGuarantee(enum.StrEnum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class SinkOptions(NamedTuple):
    client: ClientSettings
    topic: str | None  # None: each row has its own, in the column `topic`
    acks: int = -1
    codec: Codec = Codec.NONE
    # Before compression. Kafka's 16 kB suit records that arrive one by one; a broker takes 1 MB.
    batch_bytes: int = 512 * 1024
    buffer_bytes: int = 32 * 1024 * 1024  # per task: encoded and not yet acknowledged
    delivery_timeout_ms: int = 120_000  # per batch, including retries
    topic_timeout_ms: int = 10_000  # to wait for a topic that is being created
    delivery: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    # The rest is for exactly-once. Without two-phase commit, a batch must be committed within
    # transaction_timeout_ms; the default is the brokers' default transaction.max.timeout.ms.
    transaction_timeout_ms: int = 15 * 60_000
    # After the query's last sign of life, then brokers end its undecided transactions.
    abandoned_after_ms: int = 60_000
    is_once_per_micro_batch: bool = False  # a batch write in foreachBatch, the only one there

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery is DeliveryGuarantee.EXACTLY_ONCE


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    raw = RawOptions(options)
    for name, reason in _UNSUPPORTED.items():
        value = raw.find_kafka(name)
        if value is not None:
            raise BadOption(f"kafka.{name}", value, f"cannot be set: {reason}")
    raw.reject_near_misses(_SINK_OPTIONS, _KAFKA_OPTIONS)
    for name in _WITHOUT_EFFECT:
        raw.natural_kafka(name, 0)
    default = SinkOptions(client_settings(options), _topic(raw))
    delivery = raw.choice(
        "delivery",
        {guarantee.value: guarantee for guarantee in DeliveryGuarantee},
        default.delivery,
    )
    return default._replace(
        delivery=delivery,
        acks=_acks(raw, delivery, default.acks),
        codec=_one_of(raw, "compression.type", _CODECS, default.codec),
        batch_bytes=raw.natural_kafka("batch.size", default.batch_bytes),
        buffer_bytes=raw.positive_kafka("buffer.memory", default.buffer_bytes),
        delivery_timeout_ms=raw.positive_kafka("delivery.timeout.ms", default.delivery_timeout_ms),
        topic_timeout_ms=raw.natural_kafka("max.block.ms", default.topic_timeout_ms),
        transaction_timeout_ms=raw.positive_kafka(
            "transaction.timeout.ms", default.transaction_timeout_ms
        ),
        abandoned_after_ms=_abandoned_after_ms(raw, default.abandoned_after_ms),
        is_once_per_micro_batch=raw.flag("oncePerMicroBatch", default.is_once_per_micro_batch),
    )


def _acks(raw: RawOptions, delivery: DeliveryGuarantee, default: int) -> int:
    acks = _one_of(raw, "acks", _ACKS, default)
    if delivery is DeliveryGuarantee.EXACTLY_ONCE and acks != _ACKS["all"]:
        raise BadOption(
            "kafka.acks",
            raw.find_kafka("acks"),
            "exactly-once needs acks=all: remove this option, or write at least "
            'once with .option("delivery", "at-least-once")',
        )
    return acks


def _abandoned_after_ms(raw: RawOptions, default: int) -> int:
    abandoned_after_ms = raw.duration_ms("abandonedAfter", default)
    if abandoned_after_ms < LEAST_ABANDONED_AFTER_MS:
        raise BadOption(
            "abandonedAfter",
            raw.find("abandonedAfter"),
            f"write at least {LEAST_ABANDONED_AFTER_MS // 1000}s: a sixth of it is the time "
            "between two signs of life",
        )
    return abandoned_after_ms


def _topic(raw: RawOptions) -> str | None:
    name = raw.find("topic")
    if name is None:
        return None
    try:
        return check_topic_name(name)
    except InvalidTopicName as error:
        raise BadOption("topic", name, str(error)) from None


def _one_of(raw: RawOptions, name: str, values: Mapping[str, _Value], default: _Value) -> _Value:
    text = raw.find_kafka(name)
    return default if text is None else pick(f"kafka.{name}", text, values)
