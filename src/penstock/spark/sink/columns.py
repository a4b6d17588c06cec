"""Which columns of a DataFrame the sink writes, and what they may be: as in Spark's own connector.
Columns with other names are left out, as it does.
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
    """Places in a row; -1: not there."""

    key: int
    value: int
    headers: int
    topic: int  # -1 also when the option `topic` decides
    partition: int


class TopicRows(NamedTuple):
    """Of one topic, in their order."""

    topic: str
    size: int  # how many
    key: pa.Array | None  # binary or text, as the value
    value: pa.Array
    headers: pa.Array | None
    partition: pa.Array | None  # int32; null: chosen by the key


def check_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Where the sink's columns are, or SparkSourceError."""
    places = {field.name: place for place, field in enumerate(schema.fields)}
    if "value" not in places:
        raise SparkSourceError(
            f"the sink needs a column `value`, the rows have {_names(schema)}: rename one, or make "
            'it, for example .selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in places:
        raise SparkSourceError(
            "the sink does not know where to write: give the option topic, or the rows a column "
            f"`topic`; they have {_names(schema)}"
        )
    for name in _ALLOWED.keys() & places.keys():
        if name != "topic" or topic is None:
            _check_type(name, schema.fields[places[name]].dataType)
    found = SinkColumns(*(places.get(name, -1) for name in SinkColumns._fields))
    return found if topic is None else found._replace(topic=-1)


def _check_type(name: str, kind: DataType) -> None:
    # Nullability and collations are no part of it.
    is_allowed = any(_same(kind.simpleString(), allowed) for allowed in _ALLOWED[name])
    if not is_allowed:
        raise SparkSourceError(
            f"column `{name}` is {kind.simpleString()}, the sink takes "
            f"{' or '.join(_ALLOWED[name])}: cast it"
        )


def _same(given: str, allowed: str) -> bool:
    return given.split(" collate ")[0] == allowed


def _names(schema: StructType) -> str:
    return ", ".join(f"`{name}`" for name in schema.names) or "none"


def split_by_topic(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[TopicRows]:
    """The rows of each topic; a row without one is refused."""
    if columns.topic < 0:
        assert topic is not None
        yield _rows(batch, columns, topic)
        return
    topics = batch.column(columns.topic)
    if topics.null_count:
        raise SparkSourceError(
            f"{topics.null_count} of {len(topics)} rows have null in the column `topic`: fill it, "
            "or give the option topic"
        )
    names = topics.unique()
    for name in names:
        part = batch if len(names) == 1 else batch.filter(pc.equal(topics, name))
        yield _rows(part, columns, name.as_py())


def _rows(batch: pa.RecordBatch, columns: SinkColumns, topic: str) -> TopicRows:
    def find(place: int) -> pa.Array | None:
        return None if place < 0 else batch.column(place)

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
