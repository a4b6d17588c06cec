"""The log of a shard of deferred messages and the logs of its targets, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.unit.coordinators.deferred.runs import MemoryRuns

from penstock.coordinators.deferred.records import (
    DeferredRecord,
    decode_record,
    encode_record,
)
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.model.ids import NO_PRODUCER_ID


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


class StoredRecord(NamedTuple):
    key: bytes
    value: bytes | None
    producer_id: int  # whose transaction it was written in


class Marker(NamedTuple):
    producer_id: int
    commit: bool
    ended_ms: int


class ShardLog:
    """The shard's partition: written whole results, read back by offset or from its start."""

    def __init__(self) -> None:
        self._records: dict[int, StoredRecord | Marker] = {}
        self._uncleaned: dict[int, StoredRecord | Marker] = {}  # of another replica
        self._end_offset = 0

    def append(
        self, record: DeferredRecord, producer_id: int = NO_PRODUCER_ID
    ) -> tuple[DeferredRecord, int, int]:
        stored = StoredRecord(*encode_record(record), producer_id)
        return decode_record(stored.key, stored.value), self._append(stored), producer_id

    def append_marker(self, marker: Marker) -> None:
        self._append(marker)

    def _append(self, entry: StoredRecord | Marker) -> int:
        offset = self._end_offset
        self._records[offset] = self._uncleaned[offset] = entry
        self._end_offset += 1
        return offset

    def read(self, offset: int) -> DeferredRecord | None:
        """None: a marker."""
        entry = self._records[offset]
        return None if isinstance(entry, Marker) else decode_record(entry.key, entry.value)

    def offsets(self) -> list[int]:
        return sorted(self._records)

    def load(self, *, is_cleaned: bool = True) -> DeferredShardState:
        records = self._records if is_cleaned else self._uncleaned
        state = DeferredShardState(MemoryRuns())
        for offset, entry in sorted(records.items()):
            if isinstance(entry, Marker):
                state.end_transaction(
                    entry.producer_id, commit=entry.commit, ended_ms=entry.ended_ms
                )
            else:
                state.replay(decode_record(entry.key, entry.value), offset, entry.producer_id)
        state.on_loaded(self._end_offset)
        return state

    def compact(self, *, drops_tombstones: bool) -> None:
        """As Kafka does: up to the first open transaction, without aborted records; a marker stays
        as long as a record of its transaction."""
        stable, ends = self._find_ends()
        data = {
            offset: entry
            for offset, entry in self._records.items()
            if isinstance(entry, StoredRecord) and offset < stable
            if offset not in ends or ends[offset].commit
        }
        last = {entry.key: offset for offset, entry in sorted(data.items())}
        kept = {
            offset
            for offset, entry in data.items()
            if last[entry.key] == offset and not (entry.value is None and drops_tombstones)
        }
        needed = {id(ends[offset]) for offset in kept if offset in ends}
        self._records = {
            offset: entry
            for offset, entry in self._records.items()
            if offset >= stable
            or offset in kept
            or (isinstance(entry, Marker) and (id(entry) in needed or not drops_tombstones))
        }

    def _find_ends(self) -> tuple[int, dict[int, Marker]]:
        """The offset of the first record of an open transaction; and the markers of records."""
        open_offsets: dict[int, list[int]] = {}
        ends: dict[int, Marker] = {}
        for offset, entry in sorted(self._records.items()):
            if isinstance(entry, Marker):
                ends |= dict.fromkeys(open_offsets.pop(entry.producer_id, []), entry)
            elif entry.producer_id != NO_PRODUCER_ID:
                open_offsets.setdefault(entry.producer_id, []).append(offset)
        firsts = [offsets[0] for offsets in open_offsets.values()]
        return min(firsts, default=self._end_offset), ends
