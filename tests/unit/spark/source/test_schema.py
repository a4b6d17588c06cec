"""The columns that a query selects."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.codec.decode import COLUMNS
from penstock.spark.data_source import PenstockDataSource
from penstock.spark.errors import SparkSourceError
from penstock.spark.source.schema import COLUMN_TYPES, find_columns, full_schema

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


def test_columns_are_those_of_the_decoder_in_sparks_order() -> None:
    assert tuple(COLUMN_TYPES) == COLUMNS


def test_headers_are_included_on_request_only() -> None:
    assert "headers" not in full_schema(include_headers=False)
    assert (
        PenstockDataSource({"includeheaders": "true"})
        .schema()
        .endswith("`headers` array<struct<key:string,value:binary>>")
    )


def test_schema_selects_columns_and_their_order() -> None:
    schema = StructType(
        [
            StructField("timestamp", TimestampType()),
            StructField("value", BinaryType()),
            StructField("headers", HEADERS),
            StructField("offset", LongType()),
        ]
    )
    assert find_columns(schema) == ("timestamp", "value", "headers", "offset")


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        (StructField("price", IntegerType()), "no column 'price' to read: choose from key, value"),
        (StructField("value", StringType()), "column 'value' is binary, not string"),
        (StructField("offset", IntegerType()), "column 'offset' is bigint, not int"),
    ],
)
def test_invalid_columns_are_named(field: StructField, hint: str) -> None:
    with pytest.raises(SparkSourceError, match=hint):
        find_columns(StructType([field]))


def test_duplicate_column_is_rejected() -> None:
    twice = StructType([StructField("value", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(SparkSourceError, match="twice"):
        find_columns(twice)
