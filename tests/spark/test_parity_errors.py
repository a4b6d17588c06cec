"""What Spark's own Kafka connector rejects, ours rejects too, naming the option."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.parity import JVM, OURS, Refused, batch_result, stream_result
from tests.spark.parity_corpus import Corpus, time_ms

pytestmark = pytest.mark.usefixtures("jvm_connector")

TOPIC = "corpus-events"


class Case(NamedTuple):
    """Options beside the subscription, and a word that our error must contain."""

    named: str
    options: dict[str, str]
    subscribe: bool = True
    bootstrap: bool = True


def offsets(**by_partition: int) -> str:
    return json.dumps({TOPIC: {name[1:]: offset for name, offset in by_partition.items()}})


def forbidden(*settings: tuple[str, str]) -> dict[str, Case]:
    """Consumer configs that the connector controls itself."""
    return {f"kafka.{name}": Case(name, {f"kafka.{name}": value}) for name, value in settings}


GENERAL: dict[str, Case] = {
    "no subscription": Case("subscribe", {}, subscribe=False),
    "two subscriptions": Case("subscribePattern", {"subscribePattern": "corpus.*"}),
    "no servers": Case("bootstrap.servers", {}, bootstrap=False),
    "startingOffsets without a partition": Case(
        "startingOffsets", {"startingOffsets": offsets(_0=1, _1=1)}
    ),
    "min above max": Case(
        "maxOffsetsPerTrigger", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    ),
    "a nonexistent topic": Case("corpus-missing", {"subscribe": "corpus-missing"}, False),
    **forbidden(("auto.offset.reset", "earliest")),
}

BATCH: dict[str, Case] = {
    "starting at the latest": Case("startingOffsets", {"startingOffsets": "latest"}),
    "ending at the earliest": Case("endingOffsets", {"endingOffsets": "earliest"}),
    "endingTimestamp, a word": Case("endingTimestamp", {"endingTimestamp": "noon"}),
}

BATCH_VARIANTS: dict[str, Case] = {
    "assign, not JSON": Case("assign", {"assign": "corpus-events"}, subscribe=False),
    "a broken pattern": Case("subscribePattern", {"subscribePattern": "corpus-("}, subscribe=False),
    "minPartitions, a word": Case("minPartitions", {"minPartitions": "many"}),
    "maxRecordsPerPartition 0": Case("maxRecordsPerPartition", {"maxRecordsPerPartition": "0"}),
    "failOnDataLoss, a word": Case("failOnDataLoss", {"failOnDataLoss": "maybe"}),
    "startingTimestamp after all": Case("startingTimestamp", {"startingTimestamp": str(10**14)}),
    "startingOffsetsByTimestamp without a partition": Case(
        "startingOffsetsByTimestamp", {"startingOffsetsByTimestamp": offsets(_0=time_ms(1))}
    ),
    "an unknown strategy": Case(
        "startingOffsetsByTimestampStrategy",
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "guess"},
    ),
    "subscribe to no name": Case("subscribe", {"subscribe": " , "}, subscribe=False),
    "an empty pattern": Case("subscribePattern", {"subscribePattern": " "}, subscribe=False),
    "minPartitions 0": Case("minPartitions", {"minPartitions": "0"}),
    "minPartitions below 0": Case("minPartitions", {"minPartitions": "-3"}),
    "startingOffsets, a word": Case("startingOffsets", {"startingOffsets": "first"}),
    "startingOffsets, broken JSON": Case("startingOffsets", {"startingOffsets": '{"corpus'}),
    "startingOffsets with one too many": Case(
        "startingOffsets", {"startingOffsets": offsets(_0=1, _1=1, _2=1, _3=1)}
    ),
    "startingTimestamp, a word": Case("startingTimestamp", {"startingTimestamp": "noon"}),
    "starting at -1": Case("startingOffsets", {"startingOffsets": offsets(_0=-1, _1=0, _2=0)}),
    "ending at -2": Case("endingOffsets", {"endingOffsets": offsets(_0=-2, _1=1, _2=1)}),
    "ending without a partition": Case("endingOffsets", {"endingOffsets": offsets(_0=1)}),
    **forbidden(
        ("key.deserializer", "org.example.Text"),
        ("value.deserializer", "org.example.Text"),
        ("enable.auto.commit", "true"),
        ("interceptor.classes", "org.example.Spy"),
    ),
}

STREAM: dict[str, Case] = {
    "endingOffsets": Case("endingOffsets", {"endingOffsets": "latest"}),
    "maxOffsetsPerTrigger, a word": Case("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "few"}),
    "maxTriggerDelay, a word": Case(
        "maxTriggerDelay", {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"}
    ),
}

STREAM_VARIANTS: dict[str, Case] = {
    "endingOffsetsByTimestamp": Case(
        "endingOffsetsByTimestamp",
        {"endingOffsetsByTimestamp": offsets(_0=time_ms(1), _1=time_ms(1), _2=time_ms(1))},
    ),
    "minOffsetsPerTrigger, a word": Case("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "few"}),
}
if is_long():
    BATCH |= BATCH_VARIANTS
    STREAM |= STREAM_VARIANTS


def check(case: Case, corpus: Corpus, query: Callable[[str, dict[str, str]], object]) -> None:
    options = dict(case.options)
    if case.subscribe:
        options["subscribe"] = corpus.events
    if case.bootstrap:
        options["kafka.bootstrap.servers"] = corpus.servers
    theirs, ours = query(JVM, options), query(OURS, options)
    assert isinstance(theirs, Refused), f"the JVM's connector gave {theirs}"
    assert isinstance(ours, Refused), f"ours gave {ours}"
    assert case.named.lower() in ours.message.lower()


@pytest.mark.parametrize("name", GENERAL | BATCH)
def test_batch_queries_reject_what_the_jvm_connector_rejects(
    spark: SparkSession, corpus: Corpus, name: str
) -> None:
    case = (GENERAL | BATCH)[name]
    check(case, corpus, lambda format_name, options: batch_result(spark, format_name, options))


@pytest.mark.parametrize("name", STREAM if is_long() else ["endingOffsets"])
def test_streams_reject_what_the_jvm_connector_rejects(
    spark: SparkSession, corpus: Corpus, name: str, tmp_path: Path
) -> None:
    def query(format_name: str, options: dict[str, str]) -> object:
        return stream_result(spark, format_name, tmp_path / format_name, options)

    check(STREAM[name], corpus, query)
