"""What records say, compared with each other: which are there twice, and which numbers that the
application gives its records are missing or out of order.

Spark's part: it groups and sorts. What the result means is for `content_verdict`.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.jobs.failures import JobRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTITY_COLUMNS = ("key", "value", "headers", "timestamp")
EXAMPLES = 10_000  # of a partition
NUMBERS = 10_000  # of a partition: numbers that do not follow the one before
ROW_SCHEMA = (
    "place int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, source bigint"
)


class Identity(NamedTuple):
    """What two records must have in common to be the same one."""

    columns: tuple[str, ...] = IDENTITY_COLUMNS
    is_given: bool = False  # by the user, who knows

    @property
    def has_time(self) -> bool:
        return "timestamp" in self.columns


def parse_identity(text: str) -> Identity:
    columns = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not columns or not set(columns) <= set(IDENTITY_COLUMNS) or columns == ("timestamp",):
        raise JobRefused(
            f"--identity {text!r}: name what makes two records the same one, some of "
            f"{','.join(IDENTITY_COLUMNS)}"
        )
    return Identity(columns, is_given=True)


class Duplicates(NamedTuple):
    """Records of one content, and what its partition has of such in all."""

    place: int  # which partition
    first: int  # offsets
    last: int
    copies: int  # beside the first
    twins: int  # of these, at the same time, so that they could be of one sending
    twin_first: int | None
    twin_last: int | None
    all_twins: int  # in the partition
    all_repeats: int  # copies of any time


def find_duplicates(rows: "DataFrame", identity: Identity, tasks: int) -> "DataFrame":
    """Rows of `ROW_SCHEMA` in, those of `Duplicates` out. With many tasks, each has its contents in
    memory; with few it would sort them on disk."""
    named = [name for name in IDENTITY_COLUMNS if name in identity.columns and name != "timestamp"]
    parts = ", ".join(f"{name} IS NULL, {name}" for name in named)  # nulls alone change no hash
    backwards = ", ".join(f"{name}, {name} IS NULL" for name in reversed(named))
    # To delete what is deleted is nothing to tell of, unless somebody asks.
    compared = rows if identity.is_given else rows.where("value IS NOT NULL")
    digests = compared.selectExpr(
        "place",
        "offset",
        "timestamp" if identity.has_time else "timestamp_seconds(0) AS timestamp",
        "-1L AS source" if identity.is_given else "source",
        f"xxhash64({parts}) AS digest",
        f"hash({backwards}) AS second_digest",
    )
    digests = digests.repartition(tasks, "place", "digest", "second_digest")
    return digests.sparkSession.sql(_REPEATS, digests=digests, most=EXAMPLES)


# Of one producer's epoch, sequences tell copies from records that were sent twice on purpose.
_REPEATS = """
WITH moments AS (
  SELECT place, digest, second_digest, count(*) AS copies, min(offset) AS first,
         max(offset) AS last,
         count(*) > 1 AND NOT (min(source) = max(source) AND min(source) >= 0) AS are_twins
  FROM {digests} GROUP BY place, digest, second_digest, timestamp
), contents AS (
  SELECT place, min(first) AS first, max(last) AS last, sum(copies) AS copies,
         sum(if(are_twins, copies - 1, 0)) AS twins,
         min(if(are_twins, first, NULL)) AS twin_first,
         min_by(last, first) FILTER (WHERE are_twins) AS twin_last
  FROM moments GROUP BY place, digest, second_digest HAVING sum(copies) > 1
), numbered AS (
  SELECT *, sum(twins) OVER everything AS all_twins,
         sum(copies - 1) OVER everything AS all_repeats,
         row_number() OVER (PARTITION BY place ORDER BY twins = 0, last) AS number
  FROM contents WINDOW everything AS (PARTITION BY place)
)
SELECT place, first, last, copies - 1 AS copies, twins, twin_first, twin_last, all_twins,
       all_repeats
FROM numbered WHERE number <= {most} ORDER BY place, number
"""


class SequenceGap(NamedTuple):
    """A record whose number does not follow the highest one of its key."""

    place: int
    key: bytes | None
    offset: int
    number: int
    highest: int  # before it


def find_sequence_gaps(rows: "DataFrame", expression: str) -> "DataFrame":
    """Rows of `ROW_SCHEMA` in, those of `SequenceGap` out. The expression is SQL and gives whole
    numbers, of each key one more than before; where it gives null, a record does not count."""
    numbered = rows.selectExpr(
        "place", "key", "offset", f"try_cast(({expression}) AS bigint) AS number"
    ).where("number IS NOT NULL")
    return numbered.sparkSession.sql(_STEPS, numbered=numbered, most=NUMBERS)


_STEPS = """
WITH before AS (
  SELECT *, max(number) OVER (PARTITION BY place, key ORDER BY offset
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
  FROM {numbered}
), steps AS (
  SELECT *, row_number() OVER (PARTITION BY place ORDER BY offset) AS place_number
  FROM before WHERE number <> highest + 1
)
SELECT place, key, offset, number, highest FROM steps
WHERE place_number <= {most} ORDER BY place, offset
"""
