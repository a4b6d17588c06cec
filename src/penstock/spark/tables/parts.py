"""A file of a table as values: what a task tells the driver, and what a commit puts into the table.

Pure. `path` is relative to the table's folder. Invariant: rows of a part are of one partition of
the topic, in the order of their offsets, unless `topic_partition` is None.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.spark.tables.partitioning import PartitionValues


class Part(NamedTuple):
    path: str
    rows: int
    size_bytes: int
    values: PartitionValues  # by which the table is divided
    topic_partition: int | None  # None: somebody else wrote it, it may hold any
    first_offset: int
    last_offset: int
    first_time_us: int | None
    last_time_us: int | None


class HeldRange(NamedTuple):
    """What a table holds of a partition of its topic: everything from `start` up to `end`."""

    start: int
    end: int  # the next to be read


class TableState(NamedTuple):
    """A table as it was when it was loaded."""

    version: Any  # the format's own name of that moment
    held: Mapping[int, HeldRange]  # by number of the topic's partition


class TableChange(NamedTuple):
    """What one commit does, all of it or nothing."""

    added: Sequence[Part]
    removed: Sequence[Part]
    held: Mapping[int, HeldRange]  # of all partitions, as of this commit
    is_new_data: bool = True  # False: the same rows in other files


def write_held(held: Mapping[int, HeldRange]) -> dict[str, list[int]]:
    return {str(number): [each.start, each.end] for number, each in sorted(held.items())}


def read_held(written: Mapping[str, Sequence[int]]) -> dict[int, HeldRange]:
    return {int(number): HeldRange(int(each[0]), int(each[1])) for number, each in written.items()}
