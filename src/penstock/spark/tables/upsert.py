"""A row for each key: the latest of a batch, and files rewritten without what it replaces.

Runs in tasks. A key stays in its partition of the topic, so that one task owns all its rows.
Invariant: of a key there is one row at most, and none once its latest record has no value.
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
    rows: pa.Table  # in the order of offsets; keys whose latest record has no value are not there
    keys: pa.Array  # all that the batch has, those without a value too


def latest_rows(rows: pa.Table) -> LatestRows:
    """Of records of one partition. Each has a key and its value as it came."""
    newest = rows.select([KEY, OFFSET]).group_by(KEY).aggregate([(OFFSET, "max")])
    is_newest = pc.is_in(rows.column(OFFSET), value_set=newest.column(f"{OFFSET}_max"))
    kept = rows.filter(pc.and_(is_newest, rows.column(VALUE).is_valid()))
    return LatestRows(kept, newest.column(KEY).combine_chunks())


def rewrite_without(
    keys: pa.Array, existing: Sequence[LocatedPart], schema: pa.Schema, writer: PartWriter
) -> list[Part]:
    """Files that have one of the keys, their other rows written anew; all else stays as it is."""
    removed = []
    for located in existing:
        if has_any(located, KEY, keys):
            removed.append(located.part)
            for rows in read_part(located, schema):
                writer.add(rows.filter(pc.invert(pc.is_in(rows.column(KEY), value_set=keys))))
    return removed
