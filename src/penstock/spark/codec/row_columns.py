"""The source's columns: names and order of Spark's Kafka connector, types that Spark's Arrow reader
requires. A chunk is a number of decoded rows of one partition.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.spark.errors import SparkSourceError

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMN_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
COLUMNS = tuple(COLUMN_TYPES)
CONSTANT_COLUMNS = ("topic", "partition", "timestampType")  # within a chunk

# Chunks four times as large are no faster in Spark, rather slower.
MAX_ROWS = 64 * 1024
MAX_CHUNK_BYTES = 16 * 1024 * 1024  # of keys, values and headers, unless one batch is larger


class RowChunk(NamedTuple):
    """Rows in offset order, without their constant columns."""

    rows: int  # at least one
    is_append_time: bool
    last_offset: int
    columns: dict[str, pa.Array]


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The fields in the requested order; all are nullable, as in Spark's connector."""
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown or not columns:
        raise SparkSourceError(
            f"columns {', '.join(columns) or 'none'} are requested: choose from "
            f"{', '.join(COLUMNS)}"
        )
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
