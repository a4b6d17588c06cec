"""The columns of a DataFrame that the sink writes, with the names and types of Spark's own Kafka
connector. Other columns are ignored, as it does.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from penstock.spark.errors import SparkSourceError

_BYTES = ("string", "binary")
_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_ALLOWED = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": (_HEADERS.simpleString(),),
    "topic": ("string",),
    "partition": (IntegerType().simpleString(),),
}


class SinkColumns(NamedTuple):
    """Column indexes; -1: not there."""

    key: int
    value: int
    headers: int
    topic: int  # -1 also when the option `topic` decides
    partition: int


class TopicRows(NamedTuple):
    """Rows of one topic, in order."""

    topic: str
    size: int
    key: pa.Array | None  # binary or string, like the value
    value: pa.Array
    headers: pa.Array | None
    partition: pa.Array | None  # int32; null: chosen by key


def check_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The indexes of the sink's columns, or SparkSourceError."""
    indexes = {field.name: index for index, field in enumerate(schema.fields)}
    if "value" not in indexes:
        raise SparkSourceError(
            f"the sink needs a column `value`, the rows have {_names(schema)}: rename one, or add "
            'one, for example .selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in indexes:
        raise SparkSourceError(
            "no topic to write to: set the option topic, or add a column `topic` to the rows, "
            f"which have {_names(schema)}"
        )
    for name in _ALLOWED.keys() & indexes.keys():
        if name != "topic" or topic is None:
            _check_type(name, schema.fields[indexes[name]].dataType)
    columns = SinkColumns(*(indexes.get(name, -1) for name in SinkColumns._fields))
    return columns if topic is None else columns._replace(topic=-1)


def _check_type(name: str, kind: DataType) -> None:
    # Nullability and collation do not matter.
    is_allowed = any(_is_same_type(kind.simpleString(), allowed) for allowed in _ALLOWED[name])
    if not is_allowed:
        raise SparkSourceError(
            f"column `{name}` is {kind.simpleString()}, the sink takes "
            f"{' or '.join(_ALLOWED[name])}: cast it"
        )


def _is_same_type(actual: str, allowed: str) -> bool:
    return actual.split(" collate ")[0] == allowed


def _names(schema: StructType) -> str:
    return ", ".join(f"`{name}`" for name in schema.names) or "none"


def split_by_topic(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[TopicRows]:
    """The rows of each topic; rejects a row without one."""
    if columns.topic < 0:
        assert topic is not None
        yield _rows(batch, columns, topic)
        return
    topics = batch.column(columns.topic)
    if topics.null_count:
        raise SparkSourceError(
            f"{topics.null_count} of {len(topics)} rows have null in the column `topic`: fill it, "
            "or set the option topic"
        )
    names = topics.unique()
    for name in names:
        part = batch if len(names) == 1 else batch.filter(pc.equal(topics, name))
        yield _rows(part, columns, name.as_py())


def _rows(batch: pa.RecordBatch, columns: SinkColumns, topic: str) -> TopicRows:
    def find(index: int) -> pa.Array | None:
        return None if index < 0 else batch.column(index)

    value = find(columns.value)
    assert value is not None
    return TopicRows(
        topic,
        batch.num_rows,
        find(columns.key),
        value,
        find(columns.headers),
        find(columns.partition),
    )
