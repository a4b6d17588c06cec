"""The columns of the source: names and order are those of Spark's Kafka connector, types are what
Spark's Arrow reader demands. A chunk is some rows of one partition on their way to Arrow.
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
CONSTANT_COLUMNS = ("topic", "partition", "timestampType")  # in a chunk

# Spark takes chunks four times larger no faster, rather slower.
MAX_ROWS = 64 * 1024
MAX_CHUNK_BYTES = 16 * 1024 * 1024  # of keys, values and headers; a larger batch comes alone


class RowChunk(NamedTuple):
    """Rows in the order of their offsets, without their constant columns."""

    rows: int  # at least one
    is_append_time: bool
    last_offset: int
    columns: dict[str, pa.Array]


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The fields in the order asked for; all may be null, as in Spark's connector."""
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown or not columns:
        raise SparkSourceError(
            f"columns {', '.join(columns) or 'none'} were asked for: choose from "
            f"{', '.join(COLUMNS)}"
        )
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
