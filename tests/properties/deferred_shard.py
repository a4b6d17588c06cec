"""The log of a shard of deferred messages and the logs of its targets, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.coordinators.deferred.runs import MemoryRuns

from penstock.coordinators.deferred.records import (
    DeferredRecord,
    decode_record,
    encode_record,
)
from penstock.coordinators.deferred.state import DeferredShardState


@dataclass
class TargetLog:
    """A partition with Kafka's rule for idempotent producers."""

    values: list[bytes] = field(default_factory=list)
    last: tuple[int, list[bytes]] | None = None  # first sequence and batch

    def append(self, sequence: int, batch: list[bytes]) -> bool:
        """False: it has this batch already."""
        if self.last is not None and self.last[0] == sequence:
            assert self.last[1] == batch, "a repeat must be the same"
            return False
        expected = 0 if self.last is None else self.last[0] + len(self.last[1])
        assert sequence == expected
        self.values += batch
        self.last = sequence, batch
        return True


class ShardLog:
    """The shard's partition: written whole results, read back by offset or from its start."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[bytes, bytes | None]] = {}
        self._uncleaned: dict[int, tuple[bytes, bytes | None]] = {}  # of another replica
        self._end_offset = 0

    def append(self, record: DeferredRecord) -> tuple[DeferredRecord, int]:
        offset = self._end_offset
        self._records[offset] = self._uncleaned[offset] = encode_record(record)
        self._end_offset += 1
        return decode_record(*self._records[offset]), offset

    def read(self, offset: int) -> DeferredRecord:
        return decode_record(*self._records[offset])

    def offsets(self) -> list[int]:
        return sorted(self._records)

    def load(self, *, is_cleaned: bool = True) -> DeferredShardState:
        records = self._records if is_cleaned else self._uncleaned
        state = DeferredShardState(MemoryRuns())
        for offset in sorted(records):
            state.replay(decode_record(*records[offset]), offset)
        state.on_loaded(self._end_offset)
        return state

    def compact(self, *, drops_tombstones: bool) -> None:
        last = {key: offset for offset, (key, _) in sorted(self._records.items())}
        self._records = {
            offset: (key, value)
            for offset, (key, value) in self._records.items()
            if last[key] == offset and not (value is None and drops_tombstones)
        }
