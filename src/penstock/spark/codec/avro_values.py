"""Decodes Avro values to columns and back, with fastavro in Spark's Python workers, through Arrow.

PySpark's wheel does not include Spark's own Avro jar. A value that does not decode, or has trailing
bytes, puts the reason into the last column instead of raising an error.
"""

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.functions import arrow_udf

from penstock.spark.codec.avro_types import without_unused_logical_types
from penstock.spark.errors import SparkSourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_MAGIC = 0  # the byte before a registry's schema id


def avro_decoder(
    schema: Any,
    skip_bytes: int,
    result: "StructType",
    writer_of: Callable[[int], Any] | None = None,
) -> "Callable[[Column], Column]":
    """Binary to a struct whose last field says what is wrong, or is null. `writer_of` finds the
    schema of a registry's id: None if there is none."""
    from pyspark.sql.pandas.types import to_arrow_type

    _check_fastavro()
    stored, arrow_type = without_unused_logical_types(schema), to_arrow_type(result, timezone="UTC")

    def decode(values: "pa.Array") -> "pa.Array":
        return decode_values(values, stored, skip_bytes, arrow_type, writer_of)

    return arrow_function(decode, result)


def avro_encoder(schema: Any, skip_bytes: int, prefix: bytes = b"") -> "Callable[[Column], Column]":
    """Struct to binary, behind `prefix`. Raises an error for a row that does not fit the schema."""
    if skip_bytes and not prefix:
        raise SparkSourceError(
            "registry_prefix is for reading only: name the schema registry that has the ids, "
            "`registry: URL`"
        )
    _check_fastavro()
    stored = without_unused_logical_types(schema)

    def encode(rows: "pa.Array") -> "pa.Array":
        return encode_rows(rows, stored, prefix)

    return arrow_function(encode, "binary")


def arrow_function(function: Any, result: Any) -> "Callable[[Column], Column]":
    """Sets the annotations from which Spark infers the kind of function."""
    import pyarrow as pa

    function.__annotations__ = dict.fromkeys((*function.__annotations__, "return"), pa.Array)
    udf: Callable[[Column], Column] = arrow_udf(function, returnType=result)
    return udf


def decode_values(
    values: "pa.Array",
    schema: Any,
    skip_bytes: int,
    result: "pa.StructType",
    writer_of: Callable[[int], Any] | None = None,
) -> "pa.Array":
    import pyarrow as pa
    from fastavro import parse_schema, schemaless_reader

    parsed, bad = parse_schema(schema), result.field(result.num_fields - 1).name
    writers: dict[int, Any] = {}

    def find_writer(schema_id: int) -> Any:
        if schema_id not in writers:
            writer = None if writer_of is None else writer_of(schema_id)
            kept = None if writer is None else without_unused_logical_types(writer)
            writers[schema_id] = None if kept is None else parse_schema(kept)
        return writers[schema_id]

    def decode(value: bytes | None) -> Mapping[str, Any] | None:
        if value is None:
            return None
        if skip_bytes and (len(value) < skip_bytes or value[0] != _MAGIC):
            return {bad: "does not begin with a registry's schema id"}
        written, reader = parsed, None
        if writer_of is not None:
            schema_id = int.from_bytes(value[1:skip_bytes], "big")
            written, reader = find_writer(schema_id), parsed
            if written is None:
                return {bad: f"schema id {schema_id} is not in the registry"}
        buffer = io.BytesIO(value)
        buffer.seek(skip_bytes)
        try:
            row = schemaless_reader(buffer, written, reader)
        except Exception as error:  # arbitrary bytes may fail in any way
            return {bad: f"not Avro of this schema: {type(error).__name__}: {error}"}
        if buffer.tell() != len(value):
            return {bad: f"{len(value) - buffer.tell()} trailing bytes"}
        assert isinstance(row, dict)
        return row

    return pa.array([decode(value) for value in values.to_pylist()], result)


def encode_rows(rows: "pa.Array", schema: Any, prefix: bytes = b"") -> "pa.Array":
    import pyarrow as pa
    from fastavro import parse_schema, schemaless_writer

    parsed = parse_schema(schema)
    encoded = []
    for row in rows.to_pylist():
        buffer = io.BytesIO()
        buffer.write(prefix)
        schemaless_writer(buffer, parsed, row)
        encoded.append(buffer.getvalue())
    return pa.array(encoded, pa.binary())


def _check_fastavro() -> None:
    try:
        import fastavro  # noqa: F401
    except ImportError:
        raise SparkSourceError(
            "Avro values need fastavro, which comes with: pip install 'penstock[spark]'"
        ) from None
