"""Avro schemas as Spark types. Pure; `avro_values` reads and writes the values.

The types are those of Spark's own Avro module. Logical types without a Spark type (times, UUIDs,
durations) are read as their underlying type, as Avro's specification requires.
"""

from collections.abc import Mapping
from typing import Any

from penstock.spark.codec.ddl_columns import quoted

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_NAMED = ("record", "enum", "fixed")


class AvroUnsupported(ValueError):
    """An invalid schema, or one without a Spark type; the message says where."""


def avro_columns(schema: Any) -> dict[str, str]:
    """The columns of a record, with their types in Spark's DDL."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise AvroUnsupported('the schema must be a record: {"type": "record", "fields": [...]}')
    return _Types().fields(schema, str(schema.get("name", "record")), None)


def without_unused_logical_types(schema: Any) -> Any:
    """The schema for reading and writing values, without logical types that have no Spark type."""
    if isinstance(schema, list):
        return [without_unused_logical_types(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: without_unused_logical_types(value) for name, value in schema.items()}
    logical = kept.get("logicalType")
    if logical != "decimal" and (str(kept.get("type")), logical) not in _LOGICAL:
        kept.pop("logicalType", None)
    return kept


class _Types:
    """One traversal of a schema. Remembers the named types it has defined."""

    def __init__(self) -> None:
        self._named: dict[str, str | None] = {}  # None: being defined

    def fields(self, record: Mapping[str, Any], where: str, space: str | None) -> dict[str, str]:
        name, space = _full_name(record, space)
        self._named[name] = None
        fields: dict[str, str] = {}
        for field in _list(record, "fields", where):
            if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
                raise AvroUnsupported(f"{where}: each field needs a name and a type: {field!r}")
            fields[field["name"]] = self.of(field["type"], f"{where}.{field['name']}", space)
        self._named[name] = _struct(fields)
        return fields

    def of(self, schema: Any, where: str, space: str | None) -> str:
        if isinstance(schema, str):
            return self._by_name(schema, where, space)
        if isinstance(schema, list):
            return self._union(schema, where, space)
        if not isinstance(schema, Mapping):
            raise AvroUnsupported(f"{where}: {schema!r} is not an Avro type")
        return self._complex(schema, where, space)

    def _by_name(self, name: str, where: str, space: str | None) -> str:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        defined = full if full in self._named else name
        if defined not in self._named:
            raise AvroUnsupported(f"{where}: type {name!r} is not defined before it is used")
        spark_type = self._named[defined]
        if spark_type is None:
            raise AvroUnsupported(
                f"{where}: {name!r} contains itself, which Spark cannot represent"
            )
        return spark_type

    def _complex(self, schema: Mapping[str, Any], where: str, space: str | None) -> str:
        kind = schema.get("type")
        if kind == "record":
            return _struct(self.fields(schema, where, space))
        if kind == "array":
            return f"ARRAY<{self.of(schema.get('items'), f'{where}[]', space)}>"
        if kind == "map":
            return f"MAP<STRING, {self.of(schema.get('values'), f'{where}{{}}', space)}>"
        if schema.get("logicalType") == "decimal":
            return self._keep_name(schema, _decimal(schema, where), space)
        if kind == "enum":
            return self._keep_name(schema, "STRING", space)
        if kind == "fixed":
            return self._keep_name(schema, "BINARY", space)
        logical = _LOGICAL.get((str(kind), str(schema.get("logicalType"))))
        return logical or self.of(kind, where, space)

    def _keep_name(self, schema: Mapping[str, Any], spark_type: str, space: str | None) -> str:
        if schema.get("type") in _NAMED:
            self._named[_full_name(schema, space)[0]] = spark_type
        return spark_type

    def _union(self, branches: list[Any], where: str, space: str | None) -> str:
        types = {self.of(branch, where, space) for branch in branches if branch != "null"}
        if types == {"INT", "BIGINT"}:
            return "BIGINT"
        if types == {"FLOAT", "DOUBLE"}:
            return "DOUBLE"
        if len(types) != 1:
            raise AvroUnsupported(
                f"{where}: a union of {len(types)} types; Spark can represent one type, or null "
                "and one"
            )
        return types.pop()


def _full_name(schema: Mapping[str, Any], space: str | None) -> tuple[str, str | None]:
    name = str(schema.get("name", ""))
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = schema.get("namespace", space)
    return (f"{inner}.{name}" if inner else name), inner


def _decimal(schema: Mapping[str, Any], where: str) -> str:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= 38:
        raise AvroUnsupported(f"{where}: a decimal needs a precision from 1 to 38 and a scale")
    return f"DECIMAL({precision}, {scale})"


def _list(schema: Mapping[str, Any], name: str, where: str) -> list[Any]:
    entries = schema.get(name)
    if not isinstance(entries, list) or not entries:
        raise AvroUnsupported(f"{where}: {name!r} must be a list with at least one entry")
    return entries


def _struct(fields: Mapping[str, str]) -> str:
    return "STRUCT<" + ", ".join(f"{quoted(n)}: {t}" for n, t in fields.items()) + ">"
