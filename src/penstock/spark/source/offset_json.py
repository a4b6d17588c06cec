"""Offsets as JSON: what users write into options, and what Spark keeps in a checkpoint.

`{"orders": {"0": 23, "1": 42}}`, as Spark's Kafka connector has it. An end offset may carry more,
under names that no topic can have: where partitions begin that the offset before does not know.
Invariant: what `write_offset` gives can be read by `read_offset`, of any version.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition, check_partition, check_topic_name
from penstock.spark.errors import BadOption

Offsets = Mapping[TopicPartition, int]

EARLIEST = -2
LATEST = -1

_START = "@start"
_INITIAL = "@initial"
_OFFSETS_FORM = '{"topic": {"0": 23, "1": -2}}, with -2 for the earliest and -1 for the latest'
_TIMES_FORM = '{"topic": {"0": 1700000000000}}, in milliseconds since 1970'
_ASSIGN_FORM = '{"topic": [0, 1]}'


class StreamOffset(NamedTuple):
    """A place in a stream, between two batches."""

    offsets: Offsets  # the next to be read of each partition
    # Where a batch began in partitions that the offset before it did not know, or that no
    # checkpoint had yet: a batch that is run again after a crash must begin there again.
    starts: Offsets
    is_initial: bool = False  # where a new query begins: Spark does not save it


def write_offset(place: StreamOffset) -> dict[str, Any]:
    written: dict[str, Any] = nest_by_topic(place.offsets)
    if place.starts:
        written[_START] = nest_by_topic(place.starts)
    if place.is_initial:
        written[_INITIAL] = True
    return written


def read_offset(written: Mapping[str, Any]) -> StreamOffset:
    """Also one that Spark's Kafka connector has written."""
    topics = {name: each for name, each in written.items() if not name.startswith("@")}
    return StreamOffset(
        _flatten(topics), _flatten(written.get(_START, {})), bool(written.get(_INITIAL))
    )


def nest_by_topic(offsets: Offsets) -> dict[str, Any]:
    """By topic, then by number: sorted, so that equal offsets are equal texts."""
    nested: dict[str, Any] = {}
    for partition in sorted(offsets):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return nested


def _flatten(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in nested.items()
        for number, offset in numbers.items()
    }


# What users write.


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Offsets, EARLIEST or LATEST of partitions."""
    return _parse_numbers(option, text, least=EARLIEST, form=_OFFSETS_FORM)


def parse_times(option: str, text: str) -> dict[TopicPartition, int]:
    return _parse_numbers(option, text, least=0, form=_TIMES_FORM)


def parse_assign(option: str, text: str) -> tuple[TopicPartition, ...]:
    topics = _parse_topics(option, text, _ASSIGN_FORM)
    found: set[TopicPartition] = set()
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_whole(each) for each in numbers):
            raise BadOption(option, text, f"{topic!r} needs a list of numbers: {_ASSIGN_FORM}")
        found.update(_partition(option, text, topic, each) for each in numbers)
    if not found:
        raise BadOption(option, text, f"it names no partition: write {_ASSIGN_FORM}")
    return tuple(sorted(found))


def _parse_numbers(option: str, text: str, *, least: int, form: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _parse_topics(option, text, form).items():
        if not isinstance(numbers, dict):
            raise BadOption(option, text, f"{topic!r} needs a number for each partition: {form}")
        for number, value in numbers.items():
            if not number.isascii() or not number.isdecimal():
                raise BadOption(option, text, f"{number!r} is no partition's number: write {form}")
            if not _is_whole(value) or value < least:
                raise BadOption(option, text, f"{topic}-{number} has {value!r}: write {form}")
            found[_partition(option, text, topic, int(number))] = value
    if not found:
        raise BadOption(option, text, f"it names no partition: write {form}")
    return found


def _parse_topics(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise BadOption(option, text, f"it is no JSON ({error}): write {form}") from None
    if not isinstance(parsed, dict):
        raise BadOption(option, text, f"write {form}")
    return parsed


def _partition(option: str, text: str, topic: str, number: int) -> TopicPartition:
    try:
        return TopicPartition(check_topic_name(topic), check_partition(number))
    except ValueError as error:
        raise BadOption(option, text, str(error)) from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def format_partitions(partitions: Iterable[TopicPartition], *, at_most: int = 10) -> str:
    """For people: names with commas between, the first few."""
    names = [str(each) for each in sorted(partitions)]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more
