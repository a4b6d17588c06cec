"""Which small files become larger ones, and the task that does it.

`choose_groups` is pure. Invariant: a group is of one partition of the topic and of one value of
what the table is divided by, and its files follow each other by offset, so that order and bounds
stay.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.spark.tables.part_reader import LocatedPart, read_part
from penstock.spark.tables.part_writer import PartWriter, WriteRules
from penstock.spark.tables.parts import Part

_SMALL = 0.5  # of the size that files ought to have
_MOST_FILES = 512  # in one task


class CompactTask(NamedTuple):
    files: tuple[LocatedPart, ...]
    rules: WriteRules


class Compacted(NamedTuple):
    added: list[Part]
    removed: list[Part]


def choose_groups(
    parts: Iterable[Part], *, target_bytes: int, least_files: int
) -> list[tuple[Part, ...]]:
    """Each of at least so many files."""
    by_place: dict[object, list[Part]] = {}
    for part in parts:
        if part.size_bytes < target_bytes * _SMALL and part.topic_partition is not None:
            by_place.setdefault((part.values, part.topic_partition), []).append(part)
    groups = [
        group
        for place in by_place.values()
        for group in _bins(sorted(place, key=lambda part: part.first_offset), target_bytes)
    ]
    return [group for group in groups if len(group) >= max(2, least_files)]


def _bins(parts: Sequence[Part], target_bytes: int) -> Iterable[tuple[Part, ...]]:
    held: list[Part] = []
    size = 0
    for part in parts:
        if held and (size + part.size_bytes > target_bytes or len(held) >= _MOST_FILES):
            yield tuple(held)
            held, size = [], 0
        held.append(part)
        size += part.size_bytes
    if held:
        yield tuple(held)


def run_compact_task(task: CompactTask) -> Compacted:
    writer = PartWriter(task.rules, task.files[0].part.topic_partition)
    try:
        for located in task.files:
            for rows in read_part(located, task.rules.schema):
                writer.add(rows)
        return Compacted(writer.close(), [each.part for each in task.files])
    except BaseException:
        writer.give_up()
        raise
