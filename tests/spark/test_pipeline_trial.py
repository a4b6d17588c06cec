"""Values with schemas of a registry, and trial runs, on a real Spark and broker."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from pyspark.sql import SparkSession
from tests.schema_registry import stand_in_registry
from tests.spark.pipelines import documented, records_of, run_once, write_pipeline
from tests.spark.topics import Sent, create_topic, send

import penstock
from penstock.cli.pipeline_steps import show_steps
from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.trying import Sample, try_pipeline

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
NEW: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, NOTE],
}
ORDER = """
name: "order.proto" package: "shop" syntax: "proto3"
message_type { name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "note" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } }
"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
}


def framed(schema_id: int, schema: dict[str, Any], row: object) -> bytes:
    buffer = io.BytesIO(b"\x00" + schema_id.to_bytes(4, "big"))
    buffer.seek(5)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()


def test_documented_values_of_a_registry_are_read_and_written(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for name in ("orders", "dead", "protobuf", "json"):
        create_topic(servers, f"reg-{name}")
    file = Parse(ORDER, FileDescriptorProto())
    (tmp_path / "order.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    with stand_in_registry() as registry:
        old = registry.register("reg-orders-value", "AVRO", json.dumps(OLD))
        new = registry.register("reg-orders-value", "AVRO", json.dumps(NEW))
        as_json = registry.register("orders-json", "JSON", json.dumps(JSON_SCHEMA))
        values = [framed(old, OLD, {"id": 1}), framed(new, NEW, {"id": 2, "note": "x"}), b"bare"]
        send(servers, "reg-orders", [Sent(value) for value in values])
        names = {"registry": registry.url}
        written = write_pipeline(tmp_path, documented("registry.yaml"), names)
        run_once(written, spark, broker)
        in_protobuf = [bytes(r.value or b"") for r in records_of(broker, "reg-protobuf")]
        in_json = [bytes(r.value or b"") for r in records_of(broker, "reg-json")]
        assert [bytes(r.value or b"") for r in records_of(broker, "reg-dead")] == [b"bare"]
        proto_id = registry.register("reg-protobuf-value", "PROTOBUF", registry.text_of(4))
        # Zero, the id, no indexes but zero, then field 1 = 1; field 2 is a text of one letter.
        assert (proto_id, sorted(in_protobuf)) == (
            4,
            [b"\x00\x00\x00\x00\x04\x00\x08\x01", b"\x00\x00\x00\x00\x04\x00\x08\x02\x12\x01x"],
        )
        prefix = b"\x00" + as_json.to_bytes(4, "big")
        assert sorted(in_json) == [prefix + b'{"id":1}', prefix + b'{"id":2,"note":"x"}']

        # What was written is read again, by another pipeline.
        both = """
sources:
  protobuf: {topic: reg-protobuf, value: {format: protobuf, registry: "{registry}"}}
  text: {topic: reg-json, value: {format: json, registry: "{registry}", subject: orders-json}}
sinks:
  both:
    query: SELECT p.id, p.note, t.note AS again FROM protobuf p JOIN text t ON p.id = t.id
    format: noop
"""
        steps = list(
            try_pipeline(
                write_pipeline(tmp_path, both, names).read(), spark, servers, Sample(10, 5)
            )
        )
    assert [(step.name, step.rows_in, step.rows_out) for step in steps] == [
        ("protobuf", 2, 2),
        ("text", 2, 2),
        ("both", 4, 2),
    ]
    # Protobuf cannot tell a missing text from an empty one.
    assert sorted(steps[2].rows) == [
        '{"id":1,"note":""}', '{"id":2,"note":"x","again":"x"}'
    ]  # fmt: skip


TRIED = """
sources:
  clicks:
    topic: {topic}
    start: latest
    value: {format: json, schema: "user STRING, ms INT"}
    bad_values: {bad}
    watermark: {column: _timestamp, delay: 1 minute}
    dedup: ms
    expect: {positive: {condition: ms >= 0, otherwise: drop}}
    options: {maxOffsetsPerTrigger: 5}
views:
  slow: SELECT user, ms FROM clicks WHERE ms > 5
  users: {query: "SELECT user, count(*) AS n FROM slow GROUP BY user", expect: {few: n < 9}}
sinks:
  topic: {from: slow, topic: "{topic}.nowhere", key: user}
  split: {from: slow, targets: {odd: {format: noop, where: ms % 2 = 1}, all: {format: noop}}}
  users: {from: users, path: "{folder}/nowhere", mode: complete, format: delta}
"""


def test_trial_run_counts_the_rows_of_each_step_and_writes_nothing(
    spark: SparkSession,
    broker: penstock.Broker,
    tmp_path: Path,
    topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    clicks = [{"user": f"u{n % 2}", "ms": n} for n in (-1, 1, 6, 7, 7, 8)]
    values = [*(json.dumps(click).encode() for click in clicks), b"no JSON", b'{"ms": 100}']
    send(servers, topic_name, [Sent(value) for value in values])
    text = TRIED.replace(", mode: complete", "")
    written = write_pipeline(tmp_path, text, {"topic": topic_name, "bad": "skip"})
    # The last record is not among the first seven.
    steps = list(try_pipeline(written.read(), spark, servers, Sample(7, 2)))
    assert [(s.kind, s.name, s.rows_in, s.rows_out, s.bad, s.violations) for s in steps] == [
        ("source", "clicks", 7, 4, 1, {"positive": 1}),
        ("view", "slow", 4, 3, 0, {}),
        ("view", "users", 3, 2, 0, {"few": 0}),
        ("sink", "topic", 3, 3, 0, {}),
        ("sink", "split, target odd", 3, 1, 0, {}),
        ("sink", "split, target all", 3, 3, 0, {}),
        ("sink", "users", 2, 2, 0, {}),
    ]
    assert {len(step.rows) for step in steps} == {1, 2}
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "checkpoints").exists()
    show_steps(iter(steps[:2]), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["source", "clicks", "7", "4", "1", "positive", "1"]
    assert lines[3].startswith("source clicks: {")
    show_steps(iter(steps[:1]), as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["violations"] == {"positive": 1}

    failing = write_pipeline(tmp_path, text, {"topic": topic_name, "bad": "fail"})
    with pytest.raises(
        QueryFailed, match=r"^p\.yaml:4: source clicks: JSON of the schema of source"
    ):
        list(try_pipeline(failing.read(), spark, servers, Sample(100, 0)))
