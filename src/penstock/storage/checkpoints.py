"""Kafka's checkpoint files: a version, a count and one entry per line, such as a partition's
offset.

The format only; the owners decide when to write them. Invariant: a truncated file never reads as a
shorter valid one.
"""

import re
from collections.abc import Iterable, Mapping

from penstock.io.disk import Disk, read_file, replace_file
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import InvalidTopicName, Offset, TopicPartition, check_topic_name
from penstock.storage.errors import MalformedCheckpoint

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"

MAX_OFFSET = 2**63 - 1
MAX_INT = 2**31 - 1
_VERSION = 0
_NUMBER = re.compile(r"[0-9]{1,19}")  # int() alone also takes signs, blanks and underscores


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    content = read_file(disk, path)
    return {} if content is None else decode_offsets(content, path)


def read_offsets_or_report(
    disk: Disk, path: str, logger: EventLogger
) -> dict[TopicPartition, Offset]:
    """Used by recovery, which rebuilds what it cannot read: a malformed file counts as empty."""
    try:
        return read_offsets(disk, path)
    except MalformedCheckpoint as error:
        logger.warning("checkpoint_damaged", f"{error}; continuing without this file")
        return {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    replace_file(disk, path, encode_offsets(offsets))


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return encode_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(content: bytes, path: str) -> dict[TopicPartition, Offset]:
    offsets: dict[TopicPartition, Offset] = {}
    for line, fields in decode_lines(content, path, fields_per_line=3):
        tp = _parse_partition(fields, path, line)
        if tp in offsets:
            raise MalformedCheckpoint(path, line, f"{tp} is listed twice")
        offsets[tp] = Offset(parse_number(fields[2], MAX_OFFSET, path, line))
    return offsets


def encode_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode("ascii")


def decode_lines(content: bytes, path: str, *, fields_per_line: int) -> list[tuple[int, list[str]]]:
    """The fields of each entry with its line number; checks version and count."""
    if not content:
        return []  # Kafka creates its checkpoints empty before it first writes them
    lines = _split_lines(content, path)
    version = parse_number(lines[0].strip(), MAX_INT, path, 1)
    if version != _VERSION:
        raise MalformedCheckpoint(path, 1, f"version {version} is unknown, {_VERSION} expected")
    if len(lines) < 2:
        raise MalformedCheckpoint(path, 2, "the count of entries is missing")
    count = parse_number(lines[1].strip(), MAX_INT, path, 2)
    if count != len(lines) - 2:
        raise MalformedCheckpoint(path, 2, f"{count} entries announced, {len(lines) - 2} found")
    return [
        (number, _split_fields(text, fields_per_line, path, number))
        for number, text in enumerate(lines[2:], start=3)
    ]


def parse_number(text: str, maximum: int, path: str, line: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > maximum:
        raise MalformedCheckpoint(path, line, f"{text[:40]!r} is not a number from 0 to {maximum}")
    return int(text)


def _split_lines(content: bytes, path: str) -> list[str]:
    try:
        lines = content.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MalformedCheckpoint(path, line, "holds bytes that are not ASCII") from None
    if lines.pop():  # a truncated number is still a number: only the newline proves it complete
        raise MalformedCheckpoint(path, len(lines) + 1, "the file ends within this line")
    return lines


def _split_fields(text: str, expected: int, path: str, line: int) -> list[str]:
    fields = text.split()
    if len(fields) != expected:
        problem = f"{expected} fields expected, {len(fields)} found in {text[:80]!r}"
        raise MalformedCheckpoint(path, line, problem)
    return fields


def _parse_partition(fields: list[str], path: str, line: int) -> TopicPartition:
    try:
        topic = check_topic_name(fields[0])
    except InvalidTopicName as error:
        raise MalformedCheckpoint(path, line, str(error)) from None
    return TopicPartition(topic, parse_number(fields[1], MAX_INT, path, line))
