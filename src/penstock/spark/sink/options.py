"""The sink's options, parsed: Kafka's producer names, with or without `kafka.` before them.

Options that only tune Kafka's own producer (`linger.ms`, `retries`) are checked and have no effect:
a task has all its rows at hand, and a batch is sent again until `delivery.timeout.ms` is over.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from penstock.model.ids import InvalidTopicName, check_topic_name
from penstock.protocol.compression import Codec
from penstock.spark.connect.connections import CLIENT_OPTIONS, ClientSettings, client_settings
from penstock.spark.errors import BadOption
from penstock.spark.option_values import RawOptions, pick

_Value = TypeVar("_Value")
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = {codec.name.lower(): codec for codec in Codec}
_REFUSED = {
    "key.serializer": "keys are written as the bytes they are",
    "value.serializer": "values are written as the bytes they are",
    "transactional.id": "the sink names its transactions itself",
    "interceptor.classes": "there is no Java producer to intercept",
    "partitioner.class": "give the rows a column `partition` instead",
}
_WITHOUT_EFFECT = ("linger.ms", "retries")
_OF_CLIENT = (
    *("acks", "compression.type", "batch.size", "buffer.memory", "delivery.timeout.ms"),
    *("max.block.ms", "transaction.timeout.ms", *_WITHOUT_EFFECT, *CLIENT_OPTIONS),
)
_OWN = ("topic", "delivery", "abandonedAfter", "oncePerMicroBatch")


class DeliveryGuarantee(enum.StrEnum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class SinkOptions(NamedTuple):
    client: ClientSettings
    topic: str | None  # None: each row has its own, in the column `topic`
    acks: int = -1
    codec: Codec = Codec.NONE
    # Before compression. Kafka's 16 kB suit records that come one by one; a broker takes 1 MB.
    batch_bytes: int = 512 * 1024
    buffer_bytes: int = 32 * 1024 * 1024  # of one task, encoded and not yet acknowledged
    delivery_timeout_ms: int = 120_000  # for one batch, all attempts together
    topic_timeout_ms: int = 10_000  # for a topic that is being created
    delivery: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    # The rest is for exactly-once. Where the cluster has no two-phase commit, a batch must be
    # done in the first; brokers take no more, unless they are told so.
    transaction_timeout_ms: int = 15 * 60_000
    abandoned_after_ms: int = 24 * 60 * 60_000  # a query that left something undecided is dead
    is_of_micro_batch: bool = False  # a batch write that is a streaming query's only one, each time

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery is DeliveryGuarantee.EXACTLY_ONCE


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    given = RawOptions(options)
    for name, reason in _REFUSED.items():
        value = given.find_kafka(name)
        if value is not None:
            raise BadOption(f"kafka.{name}", value, f"it cannot be set: {reason}")
    given.refuse_near_misses(_OWN, _OF_CLIENT)
    for name in _WITHOUT_EFFECT:
        given.natural_kafka(name, 0)
    default = SinkOptions(client_settings(options), _topic(given))
    delivery = given.choice(
        "delivery", {each.value: each for each in DeliveryGuarantee}, default.delivery
    )
    return default._replace(
        delivery=delivery,
        acks=_acks(given, delivery, default.acks),
        codec=_one_of(given, "compression.type", _CODECS, default.codec),
        batch_bytes=given.natural_kafka("batch.size", default.batch_bytes),
        buffer_bytes=given.positive_kafka("buffer.memory", default.buffer_bytes),
        delivery_timeout_ms=given.positive_kafka(
            "delivery.timeout.ms", default.delivery_timeout_ms
        ),
        topic_timeout_ms=given.natural_kafka("max.block.ms", default.topic_timeout_ms),
        transaction_timeout_ms=given.positive_kafka(
            "transaction.timeout.ms", default.transaction_timeout_ms
        ),
        abandoned_after_ms=given.duration_ms("abandonedAfter", default.abandoned_after_ms),
        is_of_micro_batch=given.flag("oncePerMicroBatch", default.is_of_micro_batch),
    )


def _acks(given: RawOptions, delivery: DeliveryGuarantee, default: int) -> int:
    acks = _one_of(given, "acks", _ACKS, default)
    if delivery is DeliveryGuarantee.EXACTLY_ONCE and acks != _ACKS["all"]:
        raise BadOption(
            "kafka.acks",
            given.find_kafka("acks"),
            "rows are written exactly once, which needs all: leave it out, or write them at least "
            'once with .option("delivery", "at-least-once")',
        )
    return acks


def _topic(given: RawOptions) -> str | None:
    name = given.find("topic")
    if name is None:
        return None
    try:
        return check_topic_name(name)
    except InvalidTopicName as error:
        raise BadOption("topic", name, str(error)) from None


def _one_of(given: RawOptions, name: str, values: Mapping[str, _Value], default: _Value) -> _Value:
    text = given.find_kafka(name)
    return default if text is None else pick(f"kafka.{name}", text, values)
