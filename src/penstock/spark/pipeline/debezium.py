"""Debezium's envelope: a change of a row in a database, as JSON with or without its schema part.

A change becomes the row after it, or for a delete the row before it, and three columns.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

_OPERATIONS = ("c", "r", "u", "d")  # create, read (of a snapshot), update, delete


def envelope_ddl(columns: str) -> str:
    """The envelope alone, and the same inside of `payload`."""
    fields = f"before STRUCT<{columns}>, after STRUCT<{columns}>, op STRING, ts_ms BIGINT"
    return f"payload STRUCT<{fields}>, {fields}"


def changed_row(parsed: "Column") -> "Column":
    """The row after the change; of a delete, the row before it."""
    before, after = _field(parsed, "before"), _field(parsed, "after")
    return f.when(_field(parsed, "op") == "d", before).otherwise(after)


def change_columns(parsed: "Column") -> list["Column"]:
    op = _field(parsed, "op")
    return [
        op.alias("_op"),
        (op == "d").alias("_deleted"),
        f.timestamp_millis(_field(parsed, "ts_ms")).alias("_changed_at"),
    ]


def is_envelope(parsed: "Column") -> "Column":
    """Whether it has an operation that we know, and the row that this one needs."""
    is_known = _field(parsed, "op").isin(*_OPERATIONS)
    return f.coalesce(is_known & changed_row(parsed).isNotNull(), f.lit(False))


def _field(parsed: "Column", name: str) -> "Column":
    return f.coalesce(parsed["payload"][name], parsed[name])
