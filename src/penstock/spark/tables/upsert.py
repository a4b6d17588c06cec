"""Upserts: the latest record of each key in a batch, and files rewritten without replaced rows.

Runs in tasks. A key stays in its topic partition, so that one task owns all its rows. Invariant: a
key has at most one row, and none after its latest record has no value.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.part_reader import LocatedPart, has_any, read_part
from penstock.spark.tables.part_writer import PartWriter
from penstock.spark.tables.parts import Part
from penstock.spark.tables.table_schema import KEY, OFFSET, VALUE


class LatestRows(NamedTuple):
    rows: pa.Table  # ordered by offset, without keys whose latest record has no value
    keys: pa.Array  # all keys of the batch, including those without a value


def latest_rows(rows: pa.Table) -> LatestRows:
    """The latest row of each key. `rows` are of one partition; each has a key and a raw value."""
    newest = rows.select([KEY, OFFSET]).group_by(KEY).aggregate([(OFFSET, "max")])
    is_newest = pc.is_in(rows.column(OFFSET), value_set=newest.column(f"{OFFSET}_max"))
    kept = rows.filter(pc.and_(is_newest, rows.column(VALUE).is_valid()))
    return LatestRows(kept, newest.column(KEY).combine_chunks())


def rewrite_without(
    keys: pa.Array, existing: Sequence[LocatedPart], schema: pa.Schema, writer: PartWriter
) -> list[Part]:
    """Rewrites files that contain one of the keys without these rows; returns the old files."""
    removed = []
    for located in existing:
        if has_any(located, KEY, keys):
            removed.append(located.part)
            for rows in read_part(located, schema):
                writer.add(rows.filter(pc.invert(pc.is_in(rows.column(KEY), value_set=keys))))
    return removed
