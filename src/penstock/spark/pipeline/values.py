"""Converts records to columns and columns to records, with Spark's functions. Runs no query.

A value that does not parse never becomes a row: the source fails, skips it, or sends it to the
dead-letter topic, as the file says. A record without a value (a tombstone) is a row of nulls.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.spark.codec.avro_types import avro_columns
from penstock.spark.codec.avro_values import avro_decoder, avro_encoder
from penstock.spark.codec.ddl_columns import quoted, to_ddl
from penstock.spark.pipeline.connector_options import values_of
from penstock.spark.pipeline.spec import (
    HEADERS_COLUMN,
    RECORD_COLUMNS,
    BadValuePolicy,
    Encoding,
    TopicSource,
    TopicTarget,
    ValueFormat,
)
from penstock.spark.session.spark_messages import BAD_VALUE_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BAD = "_penstock_bad"
_PARSED = "_penstock_parsed"
_WHOLE = "_penstock_whole"
_ONCE = "_penstock_once"
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
    names = [*RECORD_COLUMNS, *([HEADERS_COLUMN] * source.has_headers)]
    return checked.select(f"{_PARSED}.*", *names).drop(_BAD)


def dead_letters(source: TopicSource, records: "DataFrame", pipeline: str) -> "DataFrame":
    """Records that do not parse, unchanged except for headers with the error and the origin."""
    names = ("key", "value", "headers", "topic", "partition", "offset")
    parsed = _parsed(source.value, records, [f.col(name) for name in names])
    return parsed.where(_is_bad() & (f.col(_ONCE) >= 0)).select(
        "key", "value", f.concat(_own_headers(), _reasons(source, pipeline)).alias("headers")
    )


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


def _parse(value: ValueFormat) -> "Column":
    """A struct of the value's columns plus the parse error, or null."""
    ddl = f"{value_ddl(value)}, {quoted(_BAD)} STRING"
    if value.encoding is Encoding.AVRO:
        result = StructType.fromDDL(ddl)
        assert isinstance(result, StructType)
        return avro_decoder(value.avro, value.skip_bytes, result)(f.col("value"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    return f.from_json(f.col("value").cast("string"), ddl, {**values_of(value.options), **options})


def _is_whole(value: ValueFormat) -> "Column":
    """Whether nothing follows the JSON value: Spark parses the first one and ignores the rest.

    Parsed as the only element of an array, a value with something behind it fails. That is done
    only for values that look suspicious.
    """
    if value.encoding is not Encoding.JSON:
        return f.lit(True)
    text = f.rtrim(f.col("value").cast("string"))
    alone = f.from_json(
        f.concat(f.lit("["), text, f.lit("]")), "array<string>", _json_options(value)
    )
    looks_odd = ~text.endswith("}") | text.rlike(_MAYBE_MORE)
    return f.when(looks_odd, f.coalesce(f.size(alone) == 1, f.lit(False))).otherwise(True)


def _is_bad() -> "Column":
    parsed = f.col(_PARSED)
    is_wrong = parsed.isNull() | parsed[_BAD].isNotNull() | ~f.col(_WHOLE)
    return f.col("value").isNotNull() & is_wrong


def _keeps(source: TopicSource) -> "Column":
    if source.bad_values is BadValuePolicy.FAIL:
        return f.when(_is_bad(), f.raise_error(_complaint(source)).cast("boolean")).otherwise(True)
    return ~_is_bad()


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


def _own_headers() -> "Column":
    empty = f.array().cast("array<struct<key: string, value: binary>>")
    return f.coalesce(f.col("headers"), empty)


def _reasons(source: TopicSource, pipeline: str) -> "Column":
    kind = f"no {source.value.encoding.upper()} of the schema"
    reason = f.when(
        f.lit(source.value.encoding is Encoding.AVRO), f.col(f"{_PARSED}.{_BAD}")
    ).otherwise(f.lit(kind))
    headers = {
        "penstock.error": reason,
        "penstock.pipeline": f.lit(pipeline),
        "penstock.source": f.lit(source.name),
        "penstock.topic": f.col("topic"),
        "penstock.partition": f.col("partition").cast("string"),
        "penstock.offset": f.col("offset").cast("string"),
    }
    return f.array(*(_header(name, value) for name, value in headers.items()))


def _header(name: str, value: "Column") -> "Column":
    return f.struct(f.lit(name).alias("key"), f.encode(value, "UTF-8").alias("value"))


def _value(rows: "DataFrame", value: ValueFormat) -> "Column":
    if value.encoding in (Encoding.TEXT, Encoding.BINARY):
        return f.col("value")
    names = [name for name in rows.columns if name not in (*RECORD_COLUMNS, HEADERS_COLUMN)]
    whole = f.struct(*(f.col(quoted(name)) for name in names))
    if value.encoding is Encoding.AVRO:
        return avro_encoder(value.avro, value.skip_bytes)(whole)
    return f.to_json(whole, _json_options(value))


def _json_options(value: ValueFormat) -> dict[str, str] | None:
    """None if there are none: Spark Connect would send an empty map, which Spark rejects."""
    return dict(values_of(value.options)) or None


def _bytes_or_text(rows: "DataFrame", column: "Column") -> "Column":
    kind = rows.select(column.alias("key")).schema["key"].dataType.typeName()
    return column if kind == "binary" else column.cast("string")
