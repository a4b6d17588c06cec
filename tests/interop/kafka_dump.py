"""Kafka's DumpLogSegments over our files: runs it, parses its output, and fails on its complaints.

Not a parser of log files: all it knows about them is what the tool printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.interop.kafka_broker import ToolOutput, run_java
from tests.interop.kafka_jars import KafkaJars

DUMP_CLASS = "org.apache.kafka.tools.DumpLogSegments"
DUMPED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_INDEX_SUFFIXES = (".index", ".timeindex")

# The tool's messages for every problem it can find.
COMPLAINTS = (
    "Mismatches in :",
    "Found timestamp mismatch in :",
    "Found out of order timestamp in :",
    "The following indexed offsets are not found",
    "is followed by",
    "isvalid: false",
    "isValid: false",
    "invalid bytes at the end of",
    "Ignoring unknown file",
    "Exception",
    "Error",
    "corrupt",
    "Corrupt",
)
# Gaps between offsets: an error in a plain log, but not in a compacted one.
_GAP = "is followed by"
# Kafka 4.3's tool starts counting at -1 and so reports a gap before the first record of every
# segment except the first. No record has the offset -1, so such a line never reports a real gap.
_NO_GAP = "  -1 is followed by "

_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>-?\d+) lastOffset: (?P<last_offset>-?\d+) count: (?P<count>\S+)"
    r" .*producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+)"
    r" partitionLeaderEpoch: (?P<leader_epoch>-?\d+) isTransactional: (?P<transactional>\w+)"
    r" isControl: (?P<control>\w+) .*compresscodec: (?P<codec>\w+)"
)
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp_ms>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: -?\d+ headerKeys: \[(?P<header_keys>[^\]]*)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator_epoch>-?\d+))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$"
)
_ABORTED = re.compile(
    r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
)
_PRODUCER = re.compile(
    r"^producerId: (\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+)"
    r" currentTxnFirstOffset: (\S+) lastTimestamp: (-?\d+)"
    r"(?: +firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+))?"
)


class DumpedBatch(NamedTuple):
    """A batch header as the tool printed it."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    codec: str


class DumpedRecord(NamedTuple):
    """A record as the tool printed it; keys and values that print as text only."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[str, ...]
    marker: str | None  # COMMIT or ABORT for the marker of a transaction


class DumpedAborted(NamedTuple):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class DumpedProducer(NamedTuple):
    """A producer in a snapshot; the last three fields are None if it has no batch there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None


class Dump(NamedTuple):
    """The tool's whole output for some files of one or more partitions."""

    output: ToolOutput

    def section(self, file: Path) -> str:
        """The tool's output for one file."""
        for name, text in self._sections():
            if name == str(file):
                return text
        raise KeyError(f"the tool printed nothing for {file}")

    def batches(self, directory: Path) -> list[DumpedBatch]:
        """All batches of a partition directory, in the order of its segments."""
        return [
            DumpedBatch(
                base_offset=int(match["base_offset"]),
                last_offset=int(match["last_offset"]),
                producer_id=int(match["producer_id"]),
                producer_epoch=int(match["producer_epoch"]),
                leader_epoch=int(match["leader_epoch"]),
                transactional=match["transactional"] == "true",
                control=match["control"] == "true",
                codec=match["codec"].lower(),
            )
            for line in self._lines(directory, ".log")
            if (match := _BATCH.match(line))
        ]

    def records(self, directory: Path) -> list[DumpedRecord]:
        """All records of a partition directory, including markers."""
        return [
            _dumped_record(line) for line in self._lines(directory, ".log") if line.startswith("| ")
        ]

    def aborted(self, directory: Path) -> list[DumpedAborted]:
        """All entries of its transaction indexes."""
        return [
            DumpedAborted(*map(int, match.groups()))
            for line in self._lines(directory, ".txnindex")
            if (match := _ABORTED.match(line))
        ]

    def producers(self, snapshot: Path) -> list[DumpedProducer]:
        """The producers of one snapshot file."""
        matches = [_PRODUCER.match(line) for line in self.section(snapshot).splitlines()]
        return [_dumped_producer(match.groups()) for match in matches if match]

    def _lines(self, directory: Path, suffix: str) -> Iterator[str]:
        for name, text in self._sections():
            if Path(name).parent == directory and name.endswith(suffix):
                yield from text.split("\n")

    def _sections(self) -> Iterator[tuple[str, str]]:
        parts = re.split(r"(?m)^Dumping (/.*)$", self.output.out)
        yield from zip(parts[1::2], parts[2::2], strict=True)


def partition_files(directory: Path) -> list[Path]:
    """The files of a partition directory that the tool understands, in the order of their names."""
    return sorted(path for path in directory.iterdir() if path.suffix in DUMPED_SUFFIXES)


def dump_files(jars: KafkaJars, files: Iterable[Path]) -> Dump:
    """Dump with contents; the tool also checks index entries against the log."""
    return _dump(jars, files, "--deep-iteration", "--print-data-log")


def check_indexes(jars: KafkaJars, files: Iterable[Path]) -> Dump:
    """The check that a Kafka broker makes at start to decide whether an index is rebuilt."""
    indexes = [path for path in files if path.suffix in _INDEX_SUFFIXES]
    return _dump(jars, indexes, "--index-sanity-check")


def assert_dump_clean(dump: Dump, *, compacted: bool = False) -> None:
    """Fails on any complaint of the tool; gaps between offsets are allowed in a compacted log."""
    assert dump.output.status == 0, f"the tool left with {dump.output.status}: {_tail(dump)}"
    assert "Dumping " in dump.output.out, f"the tool dumped nothing: {_tail(dump)}"
    words = [word for word in COMPLAINTS if not (compacted and word == _GAP)]
    complaints = [line for line in _spoken_lines(dump) if any(word in line for word in words)]
    assert not complaints, "\n".join(complaints[:10])


def _spoken_lines(dump: Dump) -> Iterator[str]:
    yield from (line for line in dump.output.errors.splitlines() if not line.startswith(_NO_GAP))
    for line in dump.output.out.split("\n"):
        # A record's line ends with its content, which may be any text.
        yield line.split(" key: ")[0].split(" payload: ")[0]


def _dump(jars: KafkaJars, files: Iterable[Path], *options: str) -> Dump:
    names = ",".join(str(path) for path in files)
    return Dump(run_java(jars, DUMP_CLASS, "--files", names, *options, check=False))


def _dumped_record(line: str) -> DumpedRecord:
    match = _RECORD.match(line)
    assert match, f"unknown form of a record's line: {line!r}"
    key = match["key"] or ""
    value = match["value"] or ""
    return DumpedRecord(
        offset=int(match["offset"]),
        timestamp_ms=int(match["timestamp_ms"]),
        key=None if int(match["key_size"]) < 0 else key.encode("latin-1"),
        value=None if int(match["value_size"]) < 0 else value.encode("latin-1"),
        header_keys=tuple(filter(None, match["header_keys"].split(","))),
        marker=match["marker"],
    )


def _dumped_producer(fields: tuple[str | None, ...]) -> DumpedProducer:
    numbers = [
        int(digits[0]) if (digits := re.findall(r"-?\d+", f or "")) else None for f in fields
    ]
    producer_id, epoch, coordinator_epoch, current, last_ms, first, last, last_offset = numbers
    assert producer_id is not None
    assert epoch is not None
    assert coordinator_epoch is not None
    assert last_ms is not None
    return DumpedProducer(
        producer_id, epoch, coordinator_epoch, current, last_ms, first, last, last_offset
    )


def _tail(dump: Dump) -> str:
    return (dump.output.out + dump.output.errors)[-2000:]
