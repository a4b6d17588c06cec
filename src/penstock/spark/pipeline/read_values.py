"""Reads what sources and sinks have in common: value formats, durations, options."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from penstock.client.security.secret_values import is_reference
from penstock.spark.codec.avro_types import AvroUnsupported, avro_columns
from penstock.spark.codec.ddl_columns import NotColumns, column_names, to_ddl
from penstock.spark.codec.json_schemas import JsonSchemaUnsupported, json_schema_columns
from penstock.spark.codec.protobuf_types import (
    ProtobufUnsupported,
    load_message,
    protobuf_columns,
)
from penstock.spark.pipeline.document import Section
from penstock.spark.pipeline.durations import find_span
from penstock.spark.pipeline.problems import Problems
from penstock.spark.pipeline.spec import Encoding, Option, Options, RegistryRef, Sql, ValueFormat

REGISTRY_PREFIX_BYTES = 5  # a zero byte and the schema's id


_WITH_COLUMNS = (Encoding.JSON, Encoding.DEBEZIUM)
_WITH_SCHEMA = (Encoding.AVRO, Encoding.PROTOBUF)
_IN_REGISTRY = (Encoding.AVRO, Encoding.PROTOBUF, Encoding.JSON)


class PlainEncoding(StrEnum):
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """The values that the sections of a file inherit from its top level."""

    problems: Problems
    read_file: Callable[[str], str]
    base: str = "."  # the folder of the file
    folder: str = ""  # for the pipeline's checkpoints
    trigger: str | None = None
    has_lake_jars: bool = False  # Spark itself writes Delta and Iceberg
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # of a Python file

    def within(self, *, folder: str, trigger: str | None, has_lake_jars: bool) -> Self:
        return replace(self, folder=folder, trigger=trigger, has_lake_jars=has_lake_jars)

    def read_bytes(self, name: str) -> bytes:
        return Path(self.base, name).read_bytes()

    def find_span(self, section: Section, name: str) -> str | None:
        value = section.find_value(name)
        if value is None:
            return None
        span = find_span(value)
        if span is None:
            section.wrong(
                name, f"{name!r} is {value!r}, but must be a duration, as in `10 seconds`"
            )
        return span


def read_options(section: Section, name: str = "options") -> Options:
    options = section.find_section(name)
    if options is None:
        return {}
    return {
        option_name: Option(value=text.value, line=options.line_of(option_name))
        for option_name, text in options.texts()
    }


def find_sql(section: Section, name: str) -> Sql | None:
    text = section.find_text(name)
    return Sql(text=text.value, line=text.line) if text else None


def read_columns(section: Section, name: str) -> str | None:
    """Spark's DDL, given as text or as `name: type` lines."""
    if name not in section:
        return None
    if section.is_text(name):
        ddl = section.find_value(name) or ""
    else:
        columns = section.find_section(name)
        ddl = to_ddl({column: text.value for column, text in columns.texts()}) if columns else ""
    if not ddl:
        return None
    try:
        column_names(ddl)
    except NotColumns as error:
        section.wrong(name, f"{name!r}: {error}")
        return None
    return ddl


def read_value_format(
    section: Section, context: ParseContext, *, default: Encoding, needs_columns: bool
) -> ValueFormat:
    """Reads `value: text`, or a section with a format and a schema."""
    line = section.line_of("value")
    if "value" not in section or section.is_text("value"):
        encoding = section.find_choice("value", Encoding) or default
        if encoding is Encoding.DEBEZIUM and not needs_columns:
            section.wrong("value", "debezium is a format to read, not to write")
        elif encoding in _WITH_SCHEMA or (encoding in _WITH_COLUMNS and needs_columns):
            section.wrong("value", _needs_schema(encoding))
        return ValueFormat(encoding=encoding, line=line, options={})
    inner = section.find_section("value")
    if inner is None:
        return ValueFormat(encoding=default, line=line, options={})
    value_format = _read_format_section(inner, context, default, needs_columns)
    inner.done()
    return value_format


def _read_format_section(
    inner: Section, context: ParseContext, default: Encoding, needs_columns: bool
) -> ValueFormat:
    encoding = inner.find_choice("format", Encoding) or default
    if encoding is Encoding.DEBEZIUM and not needs_columns:
        inner.wrong("format", "debezium is a format to read, not to write")
    empty = ValueFormat(encoding=encoding, line=inner.line, options={})
    registry = _read_registry(inner) if encoding in _IN_REGISTRY else None
    if registry is not None:
        empty = replace(empty, registry=registry)
        if needs_columns and ("schema_file" in inner or "schema" in inner):
            inner.wrong("registry", "the schema comes from the registry: drop that in the file")
            inner.give_up()
            return empty
    if encoding in _WITH_COLUMNS:
        return _read_json(inner, context, empty, needs_columns)
    if encoding is Encoding.AVRO:
        avro = None
        if registry is None or "schema_file" in inner or "schema" in inner:
            avro = _read_avro(inner, context)
        has_prefix = inner.find_flag("registry_prefix", default=False)
        return replace(empty, avro=avro, skip_bytes=REGISTRY_PREFIX_BYTES * has_prefix)
    if encoding is Encoding.PROTOBUF:
        return _read_protobuf(inner, context, empty)
    return empty


def _read_registry(inner: Section) -> RegistryRef | None:
    url, subject = inner.find_value("registry"), inner.find_value("subject")
    auth = inner.find_text("registry_auth")
    if url is None:
        for name in ("subject", "registry_auth"):
            if name in inner:
                inner.wrong(name, f"{name!r} needs the registry: `registry: http://host:8081`")
        return None
    _check_registry_url(inner, url)
    option = None
    if auth is not None:
        option = Option(value=auth.value.strip(), line=auth.line)
        if not is_reference(option.value):
            inner.wrong(
                "registry_auth",
                "'registry_auth' is a secret: write ${env:NAME} or ${file:PATH} (user:password)",
            )
    line = inner.line_of("registry")
    return RegistryRef(url=url.rstrip("/"), subject=subject, auth=option, line=line)


def _check_registry_url(inner: Section, url: str) -> None:
    """Never shows a password that stands in it."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_url, parts = False, urlsplit("")
    if "@" in url:
        inner.wrong(
            "registry", "'registry' is a URL without user and password: use `registry_auth:`"
        )
    elif not is_url or parts.query or parts.fragment:
        inner.wrong("registry", f"{url!r} is not the URL of a registry: http://host:8081")


def _read_json(
    inner: Section, context: ParseContext, empty: ValueFormat, needs_columns: bool
) -> ValueFormat:
    value_format = replace(empty, options=dict(read_options(inner)))
    if empty.encoding is Encoding.JSON and "schema_file" in inner:
        return _read_json_schema(inner, context, value_format)
    if not needs_columns or empty.registry is not None:
        return value_format
    columns = read_columns(inner, "schema")
    if "schema" not in inner:
        inner.wrong("schema", _needs_schema(empty.encoding))
    return replace(value_format, columns=columns)


def _read_json_schema(
    inner: Section, context: ParseContext, value_format: ValueFormat
) -> ValueFormat:
    name = inner.find_value("schema_file")
    text = None if name is None else _load(inner, context, name)
    if text is None:
        return value_format
    try:
        columns = to_ddl(json_schema_columns(json.loads(text)))
        column_names(columns)
    except (ValueError, RecursionError) as error:
        supported = isinstance(error, JsonSchemaUnsupported | NotColumns)
        reason = str(error) if supported else f"not valid JSON: {error}"
        inner.wrong("schema_file", f"'schema_file': {reason}")
        return value_format
    return replace(value_format, columns=columns, json_schema=text)


def _read_protobuf(inner: Section, context: ParseContext, empty: ValueFormat) -> ValueFormat:
    name, message = inner.find_value("schema_file"), inner.find_value("message")
    value_format = replace(empty, message=message)
    if name is None:
        if empty.registry is None and "schema_file" not in inner:
            inner.wrong("schema_file", _needs_schema(Encoding.PROTOBUF))
        return value_format
    try:
        descriptors = context.read_bytes(name)
        found_message = load_message(descriptors, message)
        protobuf_columns(found_message)
    except OSError as error:
        inner.wrong("schema_file", _cannot_read(name, error.strerror or str(error)))
        return value_format
    except ProtobufUnsupported as error:
        inner.wrong("schema_file", f"'schema_file': {error}")
        return value_format
    return replace(value_format, descriptors=descriptors, message=found_message.full_name)


def _needs_schema(encoding: Encoding) -> str:
    if encoding is Encoding.DEBEZIUM:
        return (
            "Debezium needs the columns of the table: value: {format: debezium, schema: 'id INT'}"
        )
    if encoding is Encoding.JSON:
        return "JSON needs the columns: value: {format: json, schema: 'user STRING, at TIMESTAMP'}"
    if encoding is Encoding.PROTOBUF:
        return (
            "Protobuf needs its descriptors, of protoc --descriptor_set_out: "
            "value: {format: protobuf, schema_file: click.desc}"
        )
    return "Avro needs its schema: value: {format: avro, schema_file: click.avsc}"


def _read_avro(inner: Section, context: ParseContext) -> Any:
    name = "schema_file" if "schema_file" in inner else "schema"
    text = inner.find_value(name)
    if name == "schema_file" and text is not None:
        text = _load(inner, context, text)
    elif name not in inner:
        inner.wrong(name, _needs_schema(Encoding.AVRO))
    if text is None:
        return None
    try:
        schema = json.loads(text)
        avro_columns(schema)
    except ValueError as error:
        reason = str(error) if isinstance(error, AvroUnsupported) else f"not valid JSON: {error}"
        inner.wrong(name, f"{name!r}: {reason}")
        return None
    return schema


def _load(inner: Section, context: ParseContext, name: str) -> str | None:
    try:
        return context.read_file(name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        inner.wrong("schema_file", _cannot_read(name, reason or str(error)))
        return None


def _cannot_read(name: str, reason: str) -> str:
    return f"cannot read {name}: {reason}; the path is relative to the pipeline's file"
