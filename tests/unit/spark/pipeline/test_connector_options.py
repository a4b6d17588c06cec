"""The connector options of a pipeline's sources and sinks."""

import pytest

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.connector_options import (
    sink_options,
    source_options,
    store_values_of,
)
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.spec import Pipeline, TopicTarget


def read(source: str) -> Pipeline:
    text = f"sources:\n  s: {{{source}}}\nsinks:\n  out: {{from: s, topic: t}}\n"
    return read_pipeline("p.yaml", text, lambda name: name)


def test_source_reads_only_committed_records_by_default() -> None:
    (source,) = read("topics: [a, b]").topic_sources()
    assert source_options(source, "h:1") == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "includeHeaders": "false",
        "kafka.isolation.level": "read_committed",
    }
    for name in ("isolation.level", "kafka.isolation.level"):
        (source,) = read(f"topic: a, options: {{{name}: read_uncommitted}}").topic_sources()
        options = source_options(source, "h:1")
        assert [v for k, v in options.items() if "isolation" in k] == ["read_uncommitted"]


def test_group_offsets_are_published_by_the_pipeline_not_by_its_queries() -> None:
    (source,) = read("topic_pattern: 'a.*', group: g, start: group").topic_sources()
    options = source_options(source, "h:1", headers=True)
    assert options["subscribePattern"] == "a.*"
    assert (options["kafka.group.id"], options["publishGroupOffsets"]) == ("g", "false")
    assert (options["startingOffsets"], options["includeHeaders"]) == ("group", "true")


def test_dead_letters_have_their_own_sink() -> None:
    pipeline = read("topic: a, dead_letter: d, value: {format: json, schema: n INT}")
    sink = pipeline.dead_letter_sink(pipeline.topic_sources()[0])
    assert sink is not None
    assert (sink.name, sink.checkpoint) == (
        "s.dead-letter",
        "penstock-checkpoints/p/s.dead-letter",
    )
    assert isinstance(sink.target, TopicTarget)
    assert sink_options(sink.target, sink, "h:1") == {
        "kafka.bootstrap.servers": "h:1",
        "topic": "d",
    }


def test_secrets_are_read_from_elsewhere_and_no_other_value_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_PASSWORD", "s3cr3t")
    reference = "'${env:PENSTOCK_TEST_PASSWORD}'"
    (source,) = read(
        "topic: a, options: {kafka.security.protocol: sasl_plaintext, "
        "kafka.sasl.mechanism: PLAIN, kafka.sasl.username: alice, "
        f"kafka.sasl.password: {reference}, kafka.client.id: {reference}}}"
    ).topic_sources()
    options = source_options(source, "h:1")
    assert options["kafka.sasl.password"] == "s3cr3t"
    assert options["kafka.client.id"] == "${env:PENSTOCK_TEST_PASSWORD}"
    monkeypatch.delenv("PENSTOCK_TEST_PASSWORD")
    with pytest.raises(SparkSourceError, match="PENSTOCK_TEST_PASSWORD is not set"):
        source_options(source, "h:1")


def test_secrets_of_an_object_store_are_read_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = "{AWS_REGION: x, AWS_SECRET_ACCESS_KEY: '${env:STORE_KEY}'}"
    text = "sources:\n  s: {topic: t}\nsinks:\n"
    text += f"  out: {{from: s, path: x, format: delta, options: {options}}}\n"
    (sink,) = read_pipeline("p.yaml", text, lambda name: name).sinks
    with pytest.raises(SparkSourceError, match="STORE_KEY is not set"):
        store_values_of(sink.options)
    monkeypatch.setenv("STORE_KEY", "hidden")
    assert store_values_of(sink.options) == {"AWS_REGION": "x", "AWS_SECRET_ACCESS_KEY": "hidden"}
