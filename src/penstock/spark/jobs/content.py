"""Compares the contents of records: which are duplicates, and which of the application's own
sequence numbers are missing or out of order.

The Spark part only: it groups and sorts. `content_verdict` decides what the result means.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.jobs.failures import JobRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTITY_COLUMNS = ("key", "value", "headers", "timestamp")
EXAMPLES = 10_000  # duplicates per partition that are returned
NUMBERS = 10_000  # sequence gaps per partition that are returned
ROW_SCHEMA = (
    "partition_index int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, source bigint"
)


class Identity(NamedTuple):
    """The columns in which two records must agree to count as duplicates."""

    columns: tuple[str, ...] = IDENTITY_COLUMNS
    is_given: bool = False  # chosen by the user, so every match is a duplicate

    @property
    def has_time(self) -> bool:
        return "timestamp" in self.columns


def parse_identity(text: str) -> Identity:
    columns = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not columns or not set(columns) <= set(IDENTITY_COLUMNS) or columns == ("timestamp",):
        raise JobRefused(
            f"--identity {text!r}: name the columns that make two records duplicates, one or more "
            f"of {','.join(IDENTITY_COLUMNS)}"
        )
    return Identity(columns, is_given=True)


class Duplicates(NamedTuple):
    """Records with the same content in one partition, and the partition's totals."""

    partition_index: int
    first: int  # offset
    last: int  # offset
    copies: int  # not counting the first record
    exact_copies: int  # copies with the same timestamp: possibly one send, written twice
    exact_first: int | None
    exact_last: int | None
    all_exact_copies: int  # in the partition
    all_copies: int  # in the partition, with any timestamp


def find_duplicates(rows: "DataFrame", identity: Identity, tasks: int) -> "DataFrame":
    """Turns rows of `ROW_SCHEMA` into rows of `Duplicates`.

    With enough tasks each one groups in memory; with few it would spill to disk.
    """
    named = [name for name in IDENTITY_COLUMNS if name in identity.columns and name != "timestamp"]
    parts = ", ".join(f"{name} IS NULL, {name}" for name in named)  # a null does not change a hash
    backwards = ", ".join(f"{name}, {name} IS NULL" for name in reversed(named))
    # A repeated tombstone changes nothing, so it is reported only with --identity.
    compared = rows if identity.is_given else rows.where("value IS NOT NULL")
    digests = compared.selectExpr(
        "partition_index",
        "offset",
        "timestamp" if identity.has_time else "timestamp_seconds(0) AS timestamp",
        "-1L AS source" if identity.is_given else "source",
        f"xxhash64({parts}) AS digest",
        f"hash({backwards}) AS second_digest",
    )
    digests = digests.repartition(tasks, "partition_index", "digest", "second_digest")
    return digests.sparkSession.sql(_DUPLICATES, digests=digests, most=EXAMPLES)


# Records of one producer epoch have different sequences, so equal ones were sent twice on purpose.
_DUPLICATES = """
WITH moments AS (
  SELECT partition_index, digest, second_digest, count(*) AS copies, min(offset) AS first,
         max(offset) AS last,
         count(*) > 1 AND NOT (min(source) = max(source) AND min(source) >= 0) AS are_exact
  FROM {digests} GROUP BY partition_index, digest, second_digest, timestamp
), contents AS (
  SELECT partition_index, min(first) AS first, max(last) AS last, sum(copies) AS copies,
         sum(if(are_exact, copies - 1, 0)) AS exact_copies,
         min(if(are_exact, first, NULL)) AS exact_first,
         min_by(last, first) FILTER (WHERE are_exact) AS exact_last
  FROM moments GROUP BY partition_index, digest, second_digest HAVING sum(copies) > 1
), numbered AS (
  SELECT *, sum(exact_copies) OVER everything AS all_exact_copies,
         sum(copies - 1) OVER everything AS all_copies,
         row_number() OVER (PARTITION BY partition_index ORDER BY exact_copies = 0, last) AS number
  FROM contents WINDOW everything AS (PARTITION BY partition_index)
)
SELECT partition_index, first, last, copies - 1 AS copies, exact_copies, exact_first, exact_last,
       all_exact_copies, all_copies
FROM numbered WHERE number <= {most} ORDER BY partition_index, number
"""


class SequenceGap(NamedTuple):
    """A record whose number is not one more than the highest number of its key so far."""

    partition_index: int
    key: bytes | None
    offset: int
    number: int
    highest: int  # of the key, before this record


def find_sequence_gaps(rows: "DataFrame", expression: str) -> "DataFrame":
    """Turns rows of `ROW_SCHEMA` into rows of `SequenceGap`.

    The SQL expression yields an integer that grows by one per record of a key. Records for which it
    yields null are ignored.
    """
    numbered = rows.selectExpr(
        "partition_index", "key", "offset", f"try_cast(({expression}) AS bigint) AS number"
    ).where("number IS NOT NULL")
    return numbered.sparkSession.sql(_GAPS, numbered=numbered, most=NUMBERS)


_GAPS = """
WITH before AS (
  SELECT *, max(number) OVER (PARTITION BY partition_index, key ORDER BY offset
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
  FROM {numbered}
), gaps AS (
  SELECT *, row_number() OVER (PARTITION BY partition_index ORDER BY offset) AS gap_number
  FROM before WHERE number <> highest + 1
)
SELECT partition_index, key, offset, number, highest FROM gaps
WHERE gap_number <= {most} ORDER BY partition_index, offset
"""
