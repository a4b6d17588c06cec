"""Schemas from a registry, and values with them: framed as Confluent's clients do it."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from tests.schema_registry import StandInRegistry, stand_in_registry

from penstock.spark.codec.avro_values import decode_values, encode_rows
from penstock.spark.codec.json_schemas import JsonSchemaUnsupported, json_schema_columns
from penstock.spark.codec.protobuf_types import ProtobufUnsupported, load_message, protobuf_columns
from penstock.spark.codec.protobuf_values import decode_messages, encode_messages
from penstock.spark.connect import schema_registry
from penstock.spark.connect.schema_registry import SchemaRegistry, frame
from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.failures import PipelineFailed
from penstock.spark.pipeline.problems import PipelineInvalid
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.registered import avro_writer_finder, with_registered_schemas
from penstock.spark.pipeline.spec import Pipeline, TopicTarget

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEW = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
ORDER = """
name: "order.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 1 } }
message_type { name: "Other" field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "note" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true
          oneof_index: 0 }
  field { name: "state" number: 3 type: TYPE_ENUM type_name: ".shop.State" label: LABEL_OPTIONAL }
  field { name: "at" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
          label: LABEL_OPTIONAL }
  field { name: "lines" number: 5 type: TYPE_MESSAGE type_name: ".shop.Order.Line"
          label: LABEL_REPEATED }
  field { name: "by_name" number: 6 type: TYPE_MESSAGE type_name: ".shop.Order.ByNameEntry"
          label: LABEL_REPEATED }
  field { name: "big" number: 7 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "raw" number: 8 type: TYPE_BYTES label: LABEL_OPTIONAL }
  nested_type { name: "Line"
    field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
  nested_type { name: "ByNameEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL } }
  oneof_decl { name: "_note" }
}
"""
COLUMNS = {
    "id": "BIGINT",
    "note": "STRING",
    "state": "STRING",
    "at": "TIMESTAMP",
    "lines": "ARRAY<STRUCT<`sku`: STRING>>",
    "by_name": "MAP<STRING, DOUBLE>",
    "big": "DECIMAL(20, 0)",
    "raw": "BINARY",
}
FIELDS: list[tuple[str, Any]] = [
    ("id", pa.int64()),
    ("note", pa.string()),
    ("state", pa.string()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("lines", pa.list_(pa.struct([("sku", pa.string())]))),
    ("by_name", pa.map_(pa.string(), pa.float64())),
    ("big", pa.decimal128(20, 0)),
    ("raw", pa.binary()),
]
FULL = {
    "id": 5,
    "note": "",
    "state": "PAID",
    "at": datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC),
    "lines": [{"sku": "a"}, {"sku": ""}],
    "by_name": [("x", 1.5)],
    "big": Decimal(2**64 - 1),
    "raw": b"\x00\xff",
}


def descriptors() -> bytes:
    file = Parse(ORDER, FileDescriptorProto())
    data: bytes = FileDescriptorSet(file=[file]).SerializeToString()
    return data


def read(text: str, folder: Path = Path()) -> Pipeline:
    return read_pipeline("orders.yaml", text, lambda n: (folder / n).read_text(), str(folder))


def source(registry: str, more: str = "") -> str:
    return f"""
sources:
  orders:
    topic: orders
    value: {{format: avro, registry: "{registry}"{more}}}
sinks:
  out: {{from: orders, format: noop}}
"""


def avro(schema: Any, row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()


def test_avro_is_read_with_its_writers_schema() -> None:
    with stand_in_registry() as registry:
        old = registry.register("orders-value", "AVRO", json.dumps(OLD))
        new = registry.register("orders-value", "AVRO", json.dumps(NEW))
        pipeline = with_registered_schemas(read(source(registry.url)))
        (orders,) = pipeline.topic_sources()
        assert orders.value.avro == NEW
        assert orders.value.registry is not None
        values = pa.array(
            [
                b"\x00" + old.to_bytes(4, "big") + avro(OLD, {"id": 1}),
                b"\x00" + new.to_bytes(4, "big") + avro(NEW, {"id": 2, "note": "x"}),
                b"\x00\x00\x00\x00\x63" + avro(OLD, {"id": 3}),
                avro(OLD, {"id": 4}),
                None,
            ]
        )
        result = pa.struct([("id", pa.int64()), ("note", pa.string()), ("bad", pa.string())])
        find = avro_writer_finder(orders.value.registry)
        rows = decode_values(values, orders.value.avro, 5, result, find).to_pylist()
    assert rows[:2] == [
        {"id": 1, "note": None, "bad": None},
        {"id": 2, "note": "x", "bad": None},
    ]
    assert rows[2]["bad"] == "schema id 99 is not in the registry"
    assert rows[3]["bad"] == "does not begin with a registry's schema id"
    assert rows[4] is None
    assert sum("/ids/" in request for request in registry.requests) == 3  # one for each id


SINK = """
sinks:
  out:
    query: SELECT 1 AS id
    topic: orders
    value: {{format: {format}, registry: "{url}", {schema}}}
"""


def written(registry: StandInRegistry, kind: str, schema: str, folder: Path) -> Any:
    text = SINK.format(format=kind, url=registry.url, schema=schema)
    target = with_registered_schemas(read(text, folder)).sinks[0].target
    assert isinstance(target, TopicTarget)
    return target.value


def test_sinks_register_their_schema_or_take_the_newest(tmp_path: Path) -> None:
    json_schema = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    (tmp_path / "o.avsc").write_text(json.dumps(OLD))
    (tmp_path / "o.json").write_text(json_schema)
    (tmp_path / "o.desc").write_bytes(descriptors())
    with stand_in_registry() as registry:
        avro_value = written(registry, "avro", "schema_file: o.avsc", tmp_path)
        again = written(registry, "avro", "subject: orders-value", tmp_path)
        as_json = written(registry, "json", "schema_file: o.json, subject: j", tmp_path)
        proto = written(registry, "protobuf", "schema_file: o.desc, subject: p", tmp_path)
        newest = written(registry, "protobuf", "message: shop.Order, subject: p", tmp_path)
    assert (avro_value.schema_id, again.schema_id, again.avro) == (1, 1, OLD)
    assert (as_json.schema_id, as_json.columns) == (2, "`id` BIGINT")
    assert (proto.schema_id, newest.schema_id, newest.message) == (3, 3, "shop.Order")
    rows = pa.array([{"id": 1}])
    (encoded,) = encode_rows(rows, OLD, frame(258)).to_pylist()
    assert encoded == b"\x00\x00\x00\x01\x02" + avro(OLD, {"id": 1})


def test_a_login_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    with stand_in_registry() as registry:
        registry.auth = "ann:secret"
        registry.register("orders-value", "AVRO", json.dumps(OLD))
        login = ', registry_auth: "${env:REGISTRY_LOGIN}"'
        assert with_registered_schemas(read(source(registry.url, login))).topic_sources()
        with pytest.raises(PipelineFailed, match="HTTP 401, Unauthorized"):
            with_registered_schemas(read(source(registry.url)))


def test_a_login_is_not_sent_to_where_a_registry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    login = ', registry_auth: "${env:REGISTRY_LOGIN}"'
    with stand_in_registry() as other, redirecting_to(other.url) as url:
        other.register("orders-value", "AVRO", json.dumps(OLD))
        assert with_registered_schemas(read(source(url, login))).topic_sources()
        other.auth = "ann:secret"
        with pytest.raises(PipelineFailed, match="HTTP 401, Unauthorized"):
            with_registered_schemas(read(source(url, login)))
    assert "secret" not in repr(SchemaRegistry(url, "ann:secret"))


@contextmanager
def redirecting_to(url: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{url}{self.path}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("answer", [{}, {"id": None}, {"id": -1}, {"id": "7"}, {"id": 1 << 32}])
def test_an_answer_without_an_id_is_refused(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = SchemaRegistry("http://registry", None)
    monkeypatch.setattr(schema_registry, "_ask", lambda *_: answer)
    with pytest.raises(SparkSourceError, match=r"subject s .* no id of a schema"):
        schema_registry.register_schema(registry, "s", "avro", "{}")
    with pytest.raises(SparkSourceError, match=r"subject s .* no id of a schema"):
        schema_registry.latest_schema(registry, "s", "avro")


@pytest.mark.parametrize(
    "url", ["http://ann:hidden@host", "http://host:80a", "http://", "https://host/?q=1"]
)
def test_what_is_no_url_of_a_registry_is_one_line(url: str) -> None:
    with pytest.raises(PipelineInvalid) as raised:
        read(source(url))
    assert str(raised.value).startswith("orders.yaml:5: source orders, value: '")
    assert "registry" in str(raised.value)
    assert "hidden" not in str(raised.value)


def failure(text: str) -> str:
    with pytest.raises(PipelineFailed) as raised:
        with_registered_schemas(read(text))
    return str(raised.value)


def test_failures_name_subject_and_url_in_one_line() -> None:
    with stand_in_registry() as registry:
        assert failure(source(registry.url)) == (
            "orders.yaml:5: source orders: subject orders-value of the schema registry "
            f"{registry.url}: HTTP 404, Subject 'orders-value' not found."
        )
        registry.register("orders-value", "JSON", "{}")
        assert failure(source(registry.url)).endswith("it is json, but avro is expected")
        registry.register("union", "AVRO", '["null"]')
        message = failure(source(registry.url, ", subject: union"))
        assert "subject union of the schema registry http://127" in message
        assert "the schema must be a record" in message
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert failure(source(url)).startswith(
            f"orders.yaml:5: source orders: subject orders-value of the schema registry {url}: "
            "cannot be reached: "
        )


def test_protobuf_round_trip_is_unchanged_and_framed() -> None:
    data = descriptors()
    message = load_message(data, "shop.Order")
    assert protobuf_columns(message) == COLUMNS
    row_type = pa.struct(FIELDS)
    result = pa.struct([*FIELDS, ("bad", pa.string())])
    empty = {**dict.fromkeys(FULL), "id": 6}
    rows = pa.array([FULL, empty], row_type)
    for schema_id in (None, 300):
        values = encode_messages(rows, data, "shop.Order", schema_id)
        decoded = decode_messages(values, data, "shop.Order", schema_id is not None, result)
        first, second = decoded.to_pylist()
        assert first == {**FULL, "bad": None}
        assert (second["id"], second["note"], second["at"], second["state"]) == (
            6,
            None,
            None,
            "OPEN",
        )
    # Zero, the id, and the indexes: one of them, 1, as zigzag numbers.
    assert values[0].as_py()[:7] == b"\x00\x00\x00\x01\x2c\x02\x02"
    (other,) = encode_messages(pa.array([{"x": 1}]), data, "shop.Other", 300).to_pylist()
    assert other == b"\x00\x00\x00\x01\x2c\x00\x08\x01"


def test_values_that_are_no_protobuf_say_why() -> None:
    data, result = descriptors(), pa.struct([("x", pa.int32()), ("bad", pa.string())])
    values = pa.array([b"\xff\xff", b"\x00\x00\x00\x00\x01\x02\x02\x08\x01", b"\x01", None])
    rows = decode_messages(values, data, "shop.Other", True, result).to_pylist()
    assert rows[1]["bad"].endswith("another message of the schema: [1]")
    assert rows[0]["bad"].endswith("does not begin with a registry's schema id")
    assert rows[3] is None
    (bad,) = decode_messages(values[:1], data, "shop.Other", False, result).to_pylist()
    assert bad["bad"].startswith("not Protobuf of this schema: ")


def test_json_schema_has_spark_types() -> None:
    schema = {
        "$defs": {"Tag": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
            "size": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "kind": {"enum": ["a", "b"]},
        },
    }
    assert json_schema_columns(schema) == {
        "id": "BIGINT",
        "at": "TIMESTAMP",
        "tags": "ARRAY<STRUCT<`name`: STRING>>",
        "size": "DOUBLE",
        "counts": "MAP<STRING, BIGINT>",
        "kind": "STRING",
    }


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ({"type": ["integer", "string"]}, "the schema.a: one type is expected, and null"),
        ({"type": "object"}, "the schema.a: an object needs properties, or a type of all values"),
        ({"$ref": "other.json"}, "the schema.a: other.json is not in the schema itself"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "the schema.a: 2 alternatives"),
        ({"anyOf": 5}, "the schema.a: alternatives must be a list"),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, "contains itself"),
    ],
)
def test_json_schema_without_spark_type_says_where(inner: Any, reason: str) -> None:
    schema = {"type": "object", "properties": {"a": inner}}
    with pytest.raises(JsonSchemaUnsupported, match=f"(?s).*{reason}"):
        json_schema_columns(schema)


def test_descriptor_mistakes_are_reported() -> None:
    with pytest.raises(ProtobufUnsupported, match="not a descriptor set: make one with protoc"):
        load_message(b"message Order {}", None)
    with pytest.raises(ProtobufUnsupported, match=r"there is no message 'shop\.Ordr'"):
        load_message(descriptors(), "shop.Ordr")


VALUES = [
    (
        "{format: avro, registry: 'reg:8081'}",
        "'reg:8081' is not the URL of a registry: http://host",
    ),
    ("{format: avro, registry: 'http://r', schema: x}", "the schema comes from the registry: drop"),
    (
        "{format: json, subject: x, schema: a INT}",
        "'subject' needs the registry: `registry: http://",
    ),
    (
        "{format: json, registry: 'http://r', registry_auth: 'ann:secret'}",
        "'registry_auth' is a secret: write ${env:NAME}",
    ),
    ("{format: protobuf}", "Protobuf needs its descriptors, of protoc --descriptor_set_out"),
    ("{format: protobuf, schema_file: no.desc}", "cannot read no.desc: No such file or directory;"),
    ("{format: protobuf, schema_file: bad.desc}", "'schema_file': not a descriptor set: make one"),
    ("{format: json, schema_file: bad.desc}", "'schema_file': not valid JSON: "),
    ("protobuf", "Protobuf needs its descriptors, of protoc --descriptor_set_out"),
    (
        "{format: avro, registry: 'http://r', message: x}",
        "'message' is not expected here; possible",
    ),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_mistake_in_a_value_is_one_line(tmp_path: Path, value: str, expected: str) -> None:
    (tmp_path / "bad.desc").write_text("message X {}")
    sink = "sinks:\n  o: {from: a, format: noop}\n"
    text = f"sources:\n  a:\n    topic: a\n    value: {value}\n{sink}"
    with pytest.raises(PipelineInvalid) as raised:
        read(text, tmp_path)
    (first,) = str(raised.value).splitlines()
    assert first.startswith("orders.yaml:4: source a")
    assert expected in first


def test_several_topics_need_a_subject() -> None:
    text = source("http://registry").replace("topic: orders", "topics: [a, b]")
    with pytest.raises(PipelineInvalid, match="with several topics, say which schema"):
        read(text)


def test_descriptors_travel_in_base64() -> None:
    """As Confluent's clients send them, without a compiler for the text."""
    from penstock.spark.codec.protobuf_types import one_of_set, set_of_one

    text = one_of_set(descriptors())
    assert FileDescriptorProto.FromString(base64.b64decode(text)).name == "order.proto"
    assert load_message(set_of_one(text), None).full_name == "shop.Other"
