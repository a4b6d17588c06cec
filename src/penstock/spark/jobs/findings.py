"""What an audit reports: a problem, or a note that explains something, named by topic, partition
and offset. Holds no rule of what is wrong.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition


class FindingKind(StrEnum):
    CRC = "crc"  # the batch's bytes are not those that were written
    RECORDS = "records"  # the checksum holds, and the records do not decode
    UNREADABLE = "unreadable"  # no batch can be found there
    MISSING = "missing"  # offsets, sequences or numbers that nobody has
    ORDER = "order"  # they are there, at the wrong place
    DUPLICATE = "duplicate"
    EPOCH = "epoch"  # of a leader or producer, going back
    DELETED = "deleted"  # asked for, and before the log's start


class AuditFinding(NamedTuple):
    kind: FindingKind
    partition: TopicPartition
    offset: int  # the first record concerned
    last_offset: int  # the last one, where they are known to be together
    message: str
    is_problem: bool = True

    def __str__(self) -> str:
        until = f" to {self.last_offset}" if self.last_offset > self.offset else ""
        return f"{self.partition} offset {self.offset}{until}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "last_offset": self.last_offset,
            "message": self.message,
        }
