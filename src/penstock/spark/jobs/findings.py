"""Audit findings: a problem, or an explanatory note, located by topic, partition and offset.

Values only; the rules are in the modules that create them.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition


class FindingKind(StrEnum):
    CRC = "crc"  # the batch's checksum does not match its bytes
    RECORDS = "records"  # the checksum matches, but the records do not decode
    UNREADABLE = "unreadable"  # the broker finds no batch there
    MISSING = "missing"  # offsets, producer sequences or application numbers
    ORDER = "order"  # present, but out of order
    DUPLICATE = "duplicate"
    EPOCH = "epoch"  # a leader epoch or producer epoch that goes back
    DELETED = "deleted"  # requested offsets before the log start offset


class AuditFinding(NamedTuple):
    kind: FindingKind
    tp: TopicPartition
    offset: int  # of the first record concerned
    last_offset: int  # of the last one, where they are known to be adjacent
    message: str
    is_problem: bool = True

    def __str__(self) -> str:
        until = f" to {self.last_offset}" if self.last_offset > self.offset else ""
        return f"{self.tp} offset {self.offset}{until}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "offset": self.offset,
            "last_offset": self.last_offset,
            "message": self.message,
        }
