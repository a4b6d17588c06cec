"""Avro schemas as Spark columns."""

from typing import Any

import pytest

from penstock.spark.codec.avro_types import (
    AvroUnsupported,
    avro_columns,
    without_unused_logical_types,
)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def test_types_are_those_of_sparks_own_avro_module() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    schema = record(
        a="boolean",
        b="int",
        c="long",
        d="float",
        e="double",
        f="bytes",
        g="string",
        h={"type": "array", "items": "string"},
        i={"type": "map", "values": ["null", "long"]},
        j={"type": "enum", "name": "E", "symbols": ["A"]},
        k={"type": "fixed", "name": "F", "size": 4},
        l=inner,
        m=["null", "Inner"],
        n="E",
        o=["int", "long"],
        p=["null", "float", "double"],
        q={"type": "int", "logicalType": "date"},
        r={"type": "long", "logicalType": "timestamp-micros"},
        s={"type": "long", "logicalType": "local-timestamp-millis"},
        t={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        u={"type": "string", "logicalType": "uuid"},
        v={"type": "int", "logicalType": "time-millis"},
    )
    assert list(avro_columns(schema).values()) == [
        *("BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "BINARY", "STRING"),
        *("ARRAY<STRING>", "MAP<STRING, BIGINT>", "STRING", "BINARY"),
        *("STRUCT<`x`: INT>", "STRUCT<`x`: INT>", "STRING", "BIGINT", "DOUBLE"),
        *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(9, 2)", "STRING", "INT"),
    ]


def test_named_type_is_resolved_in_its_namespace() -> None:
    schema = record(
        a={"type": "enum", "name": "E", "namespace": "other", "symbols": ["A"]}, b="other.E"
    ) | {"namespace": "shop"}
    assert avro_columns(schema) == {"a": "STRING", "b": "STRING"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "the schema must be a record"),
        ({"type": "record", "name": "R"}, "R: 'fields' must be a list with at least one entry"),
        (record(a=["int", "string"]), r"R\.a: a union of 2 types; Spark can represent one type"),
        (record(a={"type": "array", "items": "Nobody"}), r"R\.a\[\]: type 'Nobody' is not defined"),
        (record(a=["null", "R"]), r"R\.a: 'R' contains itself, which Spark cannot represent"),
        (
            record(a={"type": "bytes", "logicalType": "decimal"}),
            r"R\.a: a decimal needs a precision",
        ),
        ({"type": "record", "name": "R", "fields": ["a"]}, "each field needs a name and a type"),
    ],
)
def test_unsupported_schema_is_rejected_with_its_path(schema: Any, message: str) -> None:
    with pytest.raises(AvroUnsupported, match=message):
        avro_columns(schema)


def test_logical_types_without_a_spark_type_are_dropped_for_reading() -> None:
    kept = {"type": "int", "logicalType": "date"}
    schema = record(a=kept, b=["null", {"type": "string", "logicalType": "uuid"}])
    fields = without_unused_logical_types(schema)["fields"]
    assert [field["type"] for field in fields] == [kept, ["null", {"type": "string"}]]
