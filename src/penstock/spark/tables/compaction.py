"""Chooses small files to merge into larger ones, and the task that merges them.

`choose_groups` is pure. Invariant: all files of a group have the same topic partition and the same
partition values, and are ordered by offset, so that order and bounds are preserved.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.spark.tables.part_reader import LocatedPart, read_part
from penstock.spark.tables.part_writer import PartWriter, WriteRules
from penstock.spark.tables.parts import Part

_SMALL = 0.5  # of the target file size
_MOST_FILES = 512  # per task


class CompactTask(NamedTuple):
    files: tuple[LocatedPart, ...]
    rules: WriteRules


class Compacted(NamedTuple):
    added: list[Part]
    removed: list[Part]


def choose_groups(
    parts: Iterable[Part], *, target_bytes: int, least_files: int
) -> list[tuple[Part, ...]]:
    """Groups of at least `least_files` small files."""
    by_partition: dict[object, list[Part]] = {}
    for part in parts:
        if part.size_bytes < target_bytes * _SMALL and part.topic_partition is not None:
            by_partition.setdefault((part.values, part.topic_partition), []).append(part)
    groups = [
        group
        for small in by_partition.values()
        for group in _bins(sorted(small, key=lambda part: part.first_offset), target_bytes)
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
        return Compacted(writer.close(), [file.part for file in task.files])
    except BaseException:
        writer.abort()
        raise
