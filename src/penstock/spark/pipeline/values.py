"""Converts records to columns and columns to records, with Spark's functions. Runs no query.

A value that does not parse never becomes a row: the source fails, skips it, or sends it to the
dead-letter topic, as the file says. A record without a value (a tombstone) is a row of nulls.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.spark.codec.avro_types import avro_columns
from penstock.spark.codec.avro_values import avro_decoder, avro_encoder
from penstock.spark.codec.ddl_columns import quoted, to_ddl
from penstock.spark.codec.protobuf_types import load_message, protobuf_columns
from penstock.spark.codec.protobuf_values import protobuf_decoder, protobuf_encoder
from penstock.spark.connect.schema_registry import PREFIX_BYTES, frame
from penstock.spark.pipeline.connector_options import values_of
from penstock.spark.pipeline.debezium import change_columns, changed_row, envelope_ddl, is_envelope
from penstock.spark.pipeline.refining import violation_reasons, with_event_time
from penstock.spark.pipeline.registered import avro_writer_finder
from penstock.spark.pipeline.spec import (
    HEADERS_COLUMN,
    RECORD_COLUMNS,
    BadValuePolicy,
    Encoding,
    PipelineView,
    TopicSource,
    TopicTarget,
    ValueFormat,
    ViolationPolicy,
)
from penstock.spark.session.spark_messages import BAD_VALUE_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BAD = "_penstock_bad"
_PARSED = "_penstock_parsed"
_WHOLE = "_penstock_whole"
_ONCE = "_penstock_once"
_RECORD = "_penstock_record"
_IS_BAD = "_penstock_is_bad"
_REASON = "_penstock_reason"
_ROW = "_penstock_row"
# A `}` followed by anything but white space, `,`, `]` or `}`: inside a string, or a second value.
_MAYBE_MORE = r"\}\s*[^\s,\]}]"


def good_rows(source: TopicSource, records: "DataFrame") -> "DataFrame":
    """The columns of the value, followed by the record's metadata."""
    metadata = _record_columns(source)
    if source.value.encoding is Encoding.BINARY:
        return records.select("value", *metadata)
    if source.value.encoding is Encoding.TEXT:
        return records.select(f.col("value").cast("string").alias("value"), *metadata)
    parsed = _parsed(source.value, records, [*metadata, f.col("value")])
    checked = parsed.where(_keeps(source) & (f.col(_ONCE) >= 0))
    if source.value.encoding is Encoding.DEBEZIUM:  # a tombstone follows each delete
        checked = checked.where(f.col("value").isNotNull())
    names = [*RECORD_COLUMNS, *([HEADERS_COLUMN] * source.has_headers)]
    return _with_columns(checked, source.value, [f.col(name) for name in names])


def dead_letters(source: TopicSource, records: "DataFrame", pipeline: str) -> "DataFrame":
    """Records that do not parse or whose row violates an expectation that keeps them aside,
    unchanged except for headers with the error and the origin."""
    whole = f.struct("key", "value", "headers", "topic", "partition", "offset").alias(_RECORD)
    staged = _staged(source, records, whole)
    aside = with_event_time(staged, source.refinement)
    reason = f.when(f.col(_IS_BAD), f.col(_REASON)).otherwise(
        violation_reasons(source.refinement, ViolationPolicy.DEAD_LETTER)
    )
    record = f.col(_RECORD)
    origin = {
        "penstock.source": f.lit(source.name),
        "penstock.topic": record["topic"],
        "penstock.partition": record["partition"].cast("string"),
        "penstock.offset": record["offset"].cast("string"),
    }
    kept = aside.select(_RECORD, reason.alias(_REASON)).where(f.col(_REASON).isNotNull())
    headers = f.concat(_own_headers(record["headers"]), _origin(pipeline, origin))
    return kept.select(
        record["key"].alias("key"), record["value"].alias("value"), headers.alias("headers")
    )


def _staged(source: TopicSource, records: "DataFrame", whole: "Column") -> "DataFrame":
    """Rows with the record they come from, whether it is bad, and why."""
    metadata = _record_columns(source)
    if source.value.encoding in (Encoding.TEXT, Encoding.BINARY):
        value = f.col("value")
        text = value if source.value.encoding is Encoding.BINARY else value.cast("string")
        fine = (f.lit(False).alias(_IS_BAD), f.lit(None).cast("string").alias(_REASON))
        return records.select(text.alias("value"), *metadata, whole, *fine)
    parsed = _parsed(source.value, records, [*metadata, whole, f.col("value")])
    names = [*RECORD_COLUMNS, *([HEADERS_COLUMN] * source.has_headers), _RECORD]
    columns = [f.col(name) for name in names]
    bad = (_is_bad(source.value.encoding).alias(_IS_BAD), _parse_reason(source).alias(_REASON))
    return _with_columns(parsed.where(f.col(_ONCE) >= 0), source.value, [*columns, *bad])


def row_dead_letters(view: PipelineView, rows: "DataFrame", pipeline: str) -> "DataFrame":
    """Rows of a view that violate an expectation that keeps them aside, as JSON."""
    reason = violation_reasons(view.refinement, ViolationPolicy.DEAD_LETTER).alias(_REASON)
    value = f.to_json(f.struct(*(f.col(quoted(name)) for name in rows.columns)))
    aside = with_event_time(rows, view.refinement).select(reason, value.alias("value"))
    headers = _origin(pipeline, {"penstock.view": f.lit(view.name)})
    kept = aside.where(f.col(_REASON).isNotNull())
    return kept.select(f.encode("value", "UTF-8").alias("value"), headers.alias("headers"))


def records_of(rows: "DataFrame", target: TopicTarget) -> "DataFrame":
    """The columns that the sink takes: key, value, headers, partition."""
    columns = [_value(rows, target.value).alias("value")]
    if target.key is not None:
        columns.append(_bytes_or_text(rows, f.expr(target.key.text)).alias("key"))
    elif "key" in rows.columns and target.value.encoding in (Encoding.TEXT, Encoding.BINARY):
        columns.append(f.col("key"))
    if target.headers is not None:
        columns.append(f.expr(target.headers.text).alias("headers"))
    if target.partition is not None:
        columns.append(f.expr(target.partition.text).cast("int").alias("partition"))
    return rows.select(*columns)


def value_ddl(value: ValueFormat) -> str:
    """The columns of the value in Spark's DDL."""
    if value.descriptors is not None:
        return to_ddl(protobuf_columns(load_message(value.descriptors, value.message)))
    return value.columns if value.columns is not None else to_ddl(avro_columns(value.avro))


def _record_columns(source: TopicSource) -> list["Column"]:
    key = f.col("key") if source.key is Encoding.BINARY else f.col("key").cast("string")
    where = [f.col(name.removeprefix("_")).alias(name) for name in RECORD_COLUMNS[1:]]
    headers = [f.col("headers").alias(HEADERS_COLUMN)] if source.has_headers else []
    return [key.alias(RECORD_COLUMNS[0]), *where, *headers]


def _parsed(value: ValueFormat, records: "DataFrame", kept: list["Column"]) -> "DataFrame":
    """The parsed value, with a nondeterministic column `_ONCE`.

    That keeps Spark from pushing filters on parsed columns below the parsing, which would parse
    every value twice.
    """
    whole = _is_whole(value).alias(_WHOLE)
    return records.select(*kept, _parse(value).alias(_PARSED), whole, f.rand().alias(_ONCE))


def _with_columns(rows: "DataFrame", value: ValueFormat, others: list["Column"]) -> "DataFrame":
    """The value's columns of parsed rows, and others."""
    if value.encoding is not Encoding.DEBEZIUM:
        return rows.select(f"{_PARSED}.*", *others).drop(_BAD)
    change = f.col(_PARSED)
    return rows.withColumn(_ROW, changed_row(change)).select(
        f"{_ROW}.*", *change_columns(change), *others
    )


def _parse(value: ValueFormat) -> "Column":
    """A struct of the value's columns plus the parse error, or null."""
    ddl = f"{value_ddl(value)}, {quoted(_BAD)} STRING"
    if value.encoding is Encoding.DEBEZIUM:
        ddl = f"{envelope_ddl(value_ddl(value))}, {quoted(_BAD)} STRING"
    if value.encoding is Encoding.AVRO:
        result = StructType.fromDDL(ddl)
        assert isinstance(result, StructType)
        find = None if value.registry is None else avro_writer_finder(value.registry)
        return avro_decoder(value.avro, value.skip_bytes, result, find)(f.col("value"))
    if value.encoding is Encoding.PROTOBUF:
        assert value.descriptors is not None
        assert value.message is not None
        result = StructType.fromDDL(ddl)
        assert isinstance(result, StructType)
        is_framed = value.registry is not None
        decode = protobuf_decoder(value.descriptors, value.message, is_framed, result)
        return decode(f.col("value"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    return f.from_json(_json_text(value), ddl, {**values_of(value.options), **options})


def _json_text(value: ValueFormat) -> "Column":
    """Without the frame of a registry; null if the frame is missing."""
    if value.registry is None:
        return f.col("value").cast("string")
    framed = f.expr(f"substring(value, {PREFIX_BYTES + 1})").cast("string")
    return f.when(f.expr("hex(substring(value, 1, 1)) = '00'"), framed)


def _is_whole(value: ValueFormat) -> "Column":
    """Whether nothing follows the JSON value: Spark parses the first one and ignores the rest.

    Parsed as the only element of an array, a value with something behind it fails. That is done
    only for values that look suspicious.
    """
    if value.encoding not in (Encoding.JSON, Encoding.DEBEZIUM):
        return f.lit(True)
    text = f.rtrim(_json_text(value))
    alone = f.from_json(
        f.concat(f.lit("["), text, f.lit("]")), "array<string>", _json_options(value)
    )
    looks_odd = ~text.endswith("}") | text.rlike(_MAYBE_MORE)
    return f.when(looks_odd, f.coalesce(f.size(alone) == 1, f.lit(False))).otherwise(True)


def _is_bad(encoding: Encoding) -> "Column":
    parsed = f.col(_PARSED)
    is_wrong = parsed.isNull() | parsed[_BAD].isNotNull() | ~f.col(_WHOLE)
    if encoding is Encoding.DEBEZIUM:
        is_wrong = is_wrong | ~is_envelope(parsed)
    return f.col("value").isNotNull() & is_wrong


def _keeps(source: TopicSource) -> "Column":
    if source.bad_values is BadValuePolicy.FAIL:
        return f.when(
            _is_bad(source.value.encoding), f.raise_error(_complaint(source)).cast("boolean")
        ).otherwise(True)
    return ~_is_bad(source.value.encoding)


def _complaint(source: TopicSource) -> "Column":
    what = f"{source.value.encoding.upper()} of the schema of source {source.name}"
    return f.concat(
        f.lit(f"{BAD_VALUE_MARK}{what} was expected in topic "),
        f.col("_topic"),
        f.lit(", partition "),
        f.col("_partition").cast("string"),
        f.lit(", offset "),
        f.col("_offset").cast("string"),
        f.lit(", but the value starts with "),
        f.substring(f.col("value").cast("string"), 1, 60),
    )


def _own_headers(headers: "Column") -> "Column":
    empty = f.array().cast("array<struct<key: string, value: binary>>")
    return f.coalesce(headers, empty)


def _parse_reason(source: TopicSource) -> "Column":
    if source.value.encoding in (Encoding.AVRO, Encoding.PROTOBUF):
        return f.col(f"{_PARSED}.{_BAD}")
    return f.lit(f"no {source.value.encoding.upper()} of the schema")


def _origin(pipeline: str, origin: Mapping[str, "Column"]) -> "Column":
    headers = {"penstock.error": f.col(_REASON), "penstock.pipeline": f.lit(pipeline), **origin}
    return f.array(*(_header(name, value) for name, value in headers.items()))


def _header(name: str, value: "Column") -> "Column":
    return f.struct(f.lit(name).alias("key"), f.encode(value, "UTF-8").alias("value"))


def _value(rows: "DataFrame", value: ValueFormat) -> "Column":
    if value.encoding in (Encoding.TEXT, Encoding.BINARY):
        return f.col("value")
    names = [name for name in rows.columns if name not in (*RECORD_COLUMNS, HEADERS_COLUMN)]
    whole = f.struct(*(f.col(quoted(name)) for name in names))
    if value.encoding is Encoding.AVRO:
        prefix = b"" if value.schema_id is None else frame(value.schema_id)
        return avro_encoder(value.avro, value.skip_bytes, prefix)(whole)
    if value.encoding is Encoding.PROTOBUF:
        assert value.descriptors is not None
        assert value.message is not None
        return protobuf_encoder(value.descriptors, value.message, value.schema_id)(whole)
    text = f.to_json(whole, _json_options(value))
    if value.schema_id is None:
        return text
    return f.concat(f.lit(bytearray(frame(value.schema_id))), f.encode(text, "UTF-8"))


def _json_options(value: ValueFormat) -> dict[str, str] | None:
    """None if there are none: Spark Connect would send an empty map, which Spark rejects."""
    return dict(values_of(value.options)) or None


def _bytes_or_text(rows: "DataFrame", column: "Column") -> "Column":
    kind = rows.select(column.alias("key")).schema["key"].dataType.typeName()
    return column if kind == "binary" else column.cast("string")
