"""Replaces null headers by empty ones in rows that go to a topic or to Python; both mean none.

Spark converts rows to Arrow for Python and measures the batch after each row. For a column of null
arrays every measurement starts at the batch's first row, so that 10,000 nulls take 50 million steps
(docs/decisions/0030). Empty arrays are measured once.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADERS = "headers"
_TYPE = "array<struct<key:string,value:binary>>"


def fill_null_headers(rows: "DataFrame") -> "DataFrame":
    """Leaves rows without this column, or with another type of it, as they are: the sink explains
    what is wrong."""
    from pyspark.sql import functions as f

    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if types.get(_HEADERS) != _TYPE:
        return rows
    return rows.withColumn(_HEADERS, f.coalesce(f.col(_HEADERS), f.array().cast(_TYPE)))
