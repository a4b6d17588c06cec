"""JSON Schema as Spark types. Pure. Only what types need is read: other rules are not checked."""

from collections.abc import Mapping
from typing import Any

from penstock.spark.codec.ddl_columns import quoted

_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}


class JsonSchemaUnsupported(ValueError):
    """A schema without a Spark type; the message says where."""


def json_schema_columns(schema: Any) -> dict[str, str]:
    """The columns of an object, with their types in Spark's DDL."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        raise JsonSchemaUnsupported(
            'the schema must be an object: {"type": "object", "properties": {...}}'
        )
    if not schema["properties"]:
        raise JsonSchemaUnsupported("the schema has no properties, so there would be no column")
    return _fields(schema, "the schema", schema, ())


def _fields(
    schema: Mapping[str, Any], where: str, root: Mapping[str, Any], above: tuple[str, ...]
) -> dict[str, str]:
    return {
        name: _type_of(inner, f"{where}.{name}", root, above)
        for name, inner in schema["properties"].items()
    }


def _type_of(schema: Any, where: str, root: Mapping[str, Any], above: tuple[str, ...]) -> str:
    if not isinstance(schema, Mapping):
        raise JsonSchemaUnsupported(f"{where}: {schema!r} is not a schema")
    if "$ref" in schema:
        return _referred(str(schema["$ref"]), where, root, above)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _one_of(schema[word], where, root, above)
    kinds = schema.get("type", "object" if "properties" in schema else [])
    kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if not kinds and "enum" in schema:
        return "STRING"
    if len(kinds) != 1:
        raise JsonSchemaUnsupported(f"{where}: one type is expected, and null, not {kinds}")
    return _simple(str(kinds[0]), schema, where, root, above)


def _simple(
    kind: str,
    schema: Mapping[str, Any],
    where: str,
    root: Mapping[str, Any],
    above: tuple[str, ...],
) -> str:
    if kind == "array":
        return f"ARRAY<{_type_of(schema.get('items'), f'{where}[]', root, above)}>"
    if kind == "object":
        if isinstance(schema.get("properties"), Mapping):
            fields = _fields(schema, where, root, above)
            return "STRUCT<" + ", ".join(f"{quoted(n)}: {t}" for n, t in fields.items()) + ">"
        return f"MAP<STRING, {_values_of(schema, where, root, above)}>"
    if kind == "string":
        return _FORMATS.get(str(schema.get("format")), "STRING")
    if kind not in _TYPES:
        raise JsonSchemaUnsupported(f"{where}: {kind!r} has no Spark type")
    return _TYPES[kind]


def _values_of(
    schema: Mapping[str, Any], where: str, root: Mapping[str, Any], above: tuple[str, ...]
) -> str:
    values = schema.get("additionalProperties")
    if not isinstance(values, Mapping) or not values:
        raise JsonSchemaUnsupported(f"{where}: an object needs properties, or a type of all values")
    return _type_of(values, f"{where}{{}}", root, above)


def _one_of(schemas: Any, where: str, root: Mapping[str, Any], above: tuple[str, ...]) -> str:
    if not isinstance(schemas, list):
        raise JsonSchemaUnsupported(f"{where}: alternatives must be a list")
    others = [inner for inner in schemas if inner != {"type": "null"}]
    if len(others) != 1:
        raise JsonSchemaUnsupported(
            f"{where}: {len(others)} alternatives; Spark can represent one, or null and one"
        )
    return _type_of(others[0], where, root, above)


def _referred(ref: str, where: str, root: Mapping[str, Any], above: tuple[str, ...]) -> str:
    if ref in above:
        raise JsonSchemaUnsupported(f"{where}: {ref} contains itself, which Spark cannot represent")
    schema: Any = root
    for part in ref.removeprefix("#/").split("/"):
        schema = schema.get(part) if isinstance(schema, Mapping) else None
    if not ref.startswith("#/") or schema is None:
        raise JsonSchemaUnsupported(f"{where}: {ref} is not in the schema itself")
    return _type_of(schema, where, root, (*above, ref))
