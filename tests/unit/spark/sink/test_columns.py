"""The columns that the sink writes, and how rows are split by topic."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.columns import SinkColumns, check_columns, split_by_topic


def schema(ddl: str) -> StructType:
    """Build a schema of simple types, without the JVM that `StructType.fromDDL` needs."""
    struct = StructType()
    for part in filter(None, ddl.split(", ")):
        name, kind = part.split(" ")
        struct = struct.add(name, kind)
    return struct


def test_columns_are_found_by_name_and_others_ignored() -> None:
    rows = schema("other long, partition integer, value binary, key string")
    assert check_columns(rows, "orders") == SinkColumns(
        key=3, value=2, headers=-1, topic=-1, partition=1
    )


def test_option_topic_overrides_the_column() -> None:
    assert check_columns(schema("topic long, value string"), "orders").topic == -1
    assert check_columns(schema("topic string, value string"), None).topic == 0


@pytest.mark.parametrize(
    ("ddl", "topic", "message"),
    [
        ("key string", "orders", "needs a column `value`, the rows have `key`"),
        ("", "orders", "the rows have none"),
        ("value string", None, "set the option topic, or add a column `topic`"),
        (
            "value integer",
            "orders",
            "column `value` is int, the sink takes string or binary: cast it",
        ),
        ("value string, key double", "orders", "column `key` is double"),
        (
            "value string, partition long",
            "orders",
            "column `partition` is bigint, the sink takes int",
        ),
        ("value string, headers string", "orders", "column `headers` is string"),
        ("value string, topic binary", None, "column `topic` is binary"),
    ],
)
def test_unwritable_columns_are_rejected(ddl: str, topic: str | None, message: str) -> None:
    with pytest.raises(SparkSourceError) as caught:
        check_columns(schema(ddl), topic)
    assert message in str(caught.value)


def test_rows_of_a_topic_keep_their_order() -> None:
    batch = pa.record_batch(
        {"topic": ["a", "b", "a", "b", "a"], "value": ["1", "2", "3", "4", "5"]}
    )
    columns = SinkColumns(key=-1, value=1, headers=-1, topic=0, partition=-1)
    split = {
        rows.topic: (rows.size, rows.value.to_pylist())
        for rows in split_by_topic(batch, columns, None)
    }
    assert split == {"a": (3, ["1", "3", "5"]), "b": (2, ["2", "4"])}


def test_option_topic_applies_to_all_rows() -> None:
    batch = pa.record_batch({"value": ["1", None], "partition": pa.array([1, None], pa.int32())})
    columns = SinkColumns(key=-1, value=0, headers=-1, topic=-1, partition=1)
    (rows,) = split_by_topic(batch, columns, "orders")
    assert (rows.topic, rows.size, rows.key, rows.headers) == ("orders", 2, None, None)
    assert rows.partition is not None
    assert rows.partition.to_pylist() == [1, None]


def test_row_without_topic_is_rejected() -> None:
    batch = pa.record_batch({"topic": ["a", None], "value": ["1", "2"]})
    columns = SinkColumns(key=-1, value=1, headers=-1, topic=0, partition=-1)
    with pytest.raises(SparkSourceError, match="1 of 2 rows have null in the column `topic`"):
        list(split_by_topic(batch, columns, None))
