"""Offsets as JSON, in options and in Spark's checkpoints.

`{"orders": {"0": 23, "1": 42}}`, like Spark's Kafka connector. An end offset may carry more, under
names that no topic can have: where partitions start that the previous offset does not contain, and
the ids of the topics, because a name alone does not tell a topic from one that was created anew.
Invariant: `read_offset` of every version reads what `write_offset` of every version has written.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition, check_partition, check_topic_name
from penstock.spark.errors import BadOption

Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, str]  # by name, in the form of `penstock topic describe`

EARLIEST = -2
LATEST = -1

_START = "@start"
_INITIAL = "@initial"
_TOPIC_IDS = "@topicIds"
_OFFSETS_FORM = '{"topic": {"0": 23, "1": -2}}, with -2 for the earliest and -1 for the latest'
_TIMES_FORM = '{"topic": {"0": 1700000000000}}, in milliseconds since 1970'
_ASSIGN_FORM = '{"topic": [0, 1]}'


class StreamOffset(NamedTuple):
    """A position in a stream, between two batches."""

    offsets: Offsets  # the next offset to read of each partition
    # Where a batch starts in partitions that the previous offset does not contain, or that are in
    # no checkpoint yet, so that a rerun after a crash starts there again.
    starts: Offsets
    is_initial: bool = False  # where a new query starts; Spark does not save it
    # Of the topics in `offsets`; without those of brokers or checkpoints that know none.
    topic_ids: TopicIds = MappingProxyType({})


def write_offset(offset: StreamOffset) -> dict[str, Any]:
    written: dict[str, Any] = nest_by_topic(offset.offsets)
    if offset.starts:
        written[_START] = nest_by_topic(offset.starts)
    if offset.is_initial:
        written[_INITIAL] = True
    if offset.topic_ids:
        written[_TOPIC_IDS] = dict(sorted(offset.topic_ids.items()))
    return written


def read_offset(written: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset, also one of Spark's Kafka connector."""
    return StreamOffset(
        _flatten(strip_offset(written)),
        _flatten(written.get(_START, {})),
        bool(written.get(_INITIAL)),
        dict(written.get(_TOPIC_IDS, {})),
    )


def strip_offset(written: Mapping[str, Any]) -> dict[str, Any]:
    """The offset as Spark's Kafka connector writes it, which rejects any other key."""
    return {name: value for name, value in written.items() if not name.startswith("@")}


def nest_by_topic(offsets: Offsets) -> dict[str, Any]:
    """Nest by topic, then by partition; sorted, so that equal offsets give equal JSON."""
    nested: dict[str, Any] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def _flatten(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in nested.items()
        for number, offset in numbers.items()
    }


# Options.


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Parse an offset, EARLIEST or LATEST for each partition."""
    return _parse_numbers(option, text, least=EARLIEST, form=_OFFSETS_FORM)


def parse_times(option: str, text: str) -> dict[TopicPartition, int]:
    return _parse_numbers(option, text, least=0, form=_TIMES_FORM)


def parse_assign(option: str, text: str) -> tuple[TopicPartition, ...]:
    topics = _parse_topics(option, text, _ASSIGN_FORM)
    assigned: set[TopicPartition] = set()
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_whole(number) for number in numbers):
            raise BadOption(option, text, f"{topic!r} needs a list of numbers: {_ASSIGN_FORM}")
        assigned.update(_tp(option, text, topic, number) for number in numbers)
    if not assigned:
        raise BadOption(option, text, f"names no partition: write {_ASSIGN_FORM}")
    return tuple(sorted(assigned))


def _parse_numbers(option: str, text: str, *, least: int, form: str) -> dict[TopicPartition, int]:
    values: dict[TopicPartition, int] = {}
    for topic, numbers in _parse_topics(option, text, form).items():
        if not isinstance(numbers, dict):
            raise BadOption(option, text, f"{topic!r} needs a number for each partition: {form}")
        for number, value in numbers.items():
            if not number.isascii() or not number.isdecimal():
                raise BadOption(option, text, f"{number!r} is not a partition number: write {form}")
            if not _is_whole(value) or value < least:
                raise BadOption(option, text, f"{topic}-{number} has {value!r}: write {form}")
            values[_tp(option, text, topic, int(number))] = value
    if not values:
        raise BadOption(option, text, f"names no partition: write {form}")
    return values


def _parse_topics(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise BadOption(option, text, f"not valid JSON ({error}): write {form}") from None
    if not isinstance(parsed, dict):
        raise BadOption(option, text, f"write {form}")
    return parsed


def _tp(option: str, text: str, topic: str, number: int) -> TopicPartition:
    try:
        return TopicPartition(check_topic_name(topic), check_partition(number))
    except ValueError as error:
        raise BadOption(option, text, str(error)) from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def format_partitions(partitions: Iterable[TopicPartition], *, at_most: int = 10) -> str:
    """The first few names for a message, separated by commas."""
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more
