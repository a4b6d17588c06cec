"""Values that describe a table's files: what a task returns to the driver, and what a commit adds.

Pure. `path` is relative to the table's folder. Invariant: the rows of a part belong to one topic
partition and are ordered by offset, unless `topic_partition` is None.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.spark.tables.partitioning import PartitionValues


class Part(NamedTuple):
    path: str
    rows: int
    size_bytes: int
    values: PartitionValues
    topic_partition: int | None  # None: not written by Penstock, may have rows of any partition
    first_offset: int
    last_offset: int
    first_time_us: int | None
    last_time_us: int | None


class HeldRange(NamedTuple):
    """The offsets of a topic partition that a table holds: all from `start` up to `end`."""

    start: int
    end: int  # the next offset to read


class TableState(NamedTuple):
    """A table's state when it was loaded."""

    version: Any  # in the format's own terms
    held: Mapping[int, HeldRange]  # by topic partition


class TableChange(NamedTuple):
    """The content of one atomic commit."""

    added: Sequence[Part]
    removed: Sequence[Part]
    held: Mapping[int, HeldRange]  # of all topic partitions, as of this commit
    is_new_data: bool = True  # False: the same rows in other files


def write_held(held: Mapping[int, HeldRange]) -> dict[str, list[int]]:
    return {
        str(number): [held_range.start, held_range.end]
        for number, held_range in sorted(held.items())
    }


def read_held(written: Mapping[str, Sequence[int]]) -> dict[int, HeldRange]:
    return {
        int(number): HeldRange(int(bounds[0]), int(bounds[1])) for number, bounds in written.items()
    }
