"""Replays the producers of a log to check its transaction indexes and snapshots.

Only as strict as the log allows: if compaction removed offsets, or the log does not start at 0 and
has no snapshot there, absence proves nothing.
"""

from typing import NamedTuple

from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.control import read_end_marker
from penstock.storage.findings import LogFindings
from penstock.storage.producer_replay import apply_batch
from penstock.storage.producer_state_manager import ProducerStateEntry, ProducerStateManager
from penstock.storage.transaction_index import ENTRY_BYTES, AbortedTxn

_TIMELESS = 0  # no producer expires


class _Due(NamedTuple):
    """An index entry that an abort marker requires, and how certain it is."""

    entry: AbortedTxn
    is_exact: bool  # else compaction may have removed the transaction's first records
    is_at_most: bool  # else it may have removed the marker of the transaction that began there

    def allows(self, entry: AbortedTxn) -> bool:
        if entry == self.entry:
            return True
        if entry.first_offset > self.entry.first_offset:
            return not self.is_at_most
        return not self.is_exact


class ProducerReplay:
    """Takes every valid batch that has a producer. One per log and check."""

    def __init__(self, findings: LogFindings, name: str) -> None:
        self.is_exact = True  # the replay has the broker's full state
        self._is_blind = False
        self._findings = findings
        self._state = ProducerStateManager(name)
        self._hole_end = -1  # no offset after this was missing so far
        self._with_records: set[int] = set()  # producers with records in their open transaction
        self._expected: dict[int, _Due] = {}  # by the marker's offset
        self._markers: dict[int, int] = {}  # offset of an abort marker -> its producer

    def start(self, base_offset: int, snapshot: list[ProducerStateEntry] | None) -> None:
        """Start at the log's first offset; only a snapshot there knows the state before it."""
        if snapshot is not None:
            self._state.load(snapshot, base_offset)
        elif base_offset > 0:
            self.is_exact = False

    def pass_hole(self, end_offset: int) -> None:
        """Batches up to this offset are gone, among them perhaps any producer's latest, or the
        commit marker of records that are still there."""
        self.is_exact = False
        self._hole_end = end_offset
        self._with_records.clear()

    def lose_track(self) -> None:
        """Batches could not be read, so the state of their producers is unknown."""
        self._is_blind = True
        self.is_exact = False

    def take(self, path: str, position: int, header: BatchHeader, content: memoryview) -> None:
        if not header.is_marker:
            apply_batch(self._state, header, content, _TIMELESS)
            if header.is_transactional and header.record_count:
                self._with_records.add(header.producer_id)
            return
        try:
            marker = read_end_marker(content)
        except CorruptBatch as error:
            self._findings.problem("control", path, error.reason, position=position)
            self.lose_track()
            return
        if marker is not None:
            self._take_marker(header, content, commit=marker.commit)

    def _take_marker(self, header: BatchHeader, content: memoryview, *, commit: bool) -> None:
        offset, producer_id = header.last_offset, header.producer_id
        if not commit:
            self._markers[offset] = producer_id
        aborted = apply_batch(self._state, header, content, _TIMELESS)
        # A transaction whose records were all compacted away, or are below the log's start, needs
        # no entry. Records before a hole may belong to an earlier transaction.
        if aborted is not None and producer_id in self._with_records:
            is_at_most = aborted.first_offset >= self._hole_end
            self._expected[offset] = _Due(aborted, self.is_exact, is_at_most)
        self._with_records.discard(producer_id)
        self._state.on_high_watermark(offset + 1)

    # -- transaction indexes ---------------------------------------------------------------

    def compare_index(
        self, path: str, entries: list[AbortedTxn], *, end_offset: int | None
    ) -> None:
        """Compare with the markers seen since the last call; skip entries from `end_offset` on."""
        if self._is_blind:
            self.forget_markers()
            return
        indexed = set()
        for number, entry in enumerate(entries):
            if end_offset is not None and entry.last_offset >= end_offset:
                continue
            indexed.add(entry.last_offset)
            problem = self._find_problem(entry)
            if problem is not None:
                position = number * ENTRY_BYTES
                self._findings.problem("transaction-index", path, problem, position=position)
        for offset, (expected, _, _) in self._expected.items():
            if offset not in indexed:
                self._findings.problem(
                    "transaction-index",
                    path,
                    f"the abort of producer {expected.producer_id} at offset {offset} is missing, "
                    f"so its records from {expected.first_offset} on look committed",
                    position=len(entries) * ENTRY_BYTES,
                )
        self.forget_markers()

    def forget_markers(self) -> None:
        """The index could not be compared."""
        self._expected, self._markers = {}, {}

    def _find_problem(self, entry: AbortedTxn) -> str | None:
        if self._markers.get(entry.last_offset) != entry.producer_id:
            return (
                f"the log has no abort marker of producer {entry.producer_id} at offset "
                f"{entry.last_offset}"
            )
        due = self._expected.get(entry.last_offset)
        if due is None or due.allows(entry):
            return None
        return f"{entry} differs from the log's {due.entry}"

    # -- snapshots -------------------------------------------------------------------------

    def compare_snapshot(self, path: str, entries: list[ProducerStateEntry]) -> None:
        """Compare with the current state. Producers of the log may have expired on the broker."""
        if not self.is_exact:
            return
        for entry in entries:
            replayed = self._state.find(entry.producer_id)
            if replayed is None:
                problem = "but the log has nothing of this producer"
            elif _agree(entry, replayed):
                continue
            else:
                problem = f"the log shows {replayed}"
            self._findings.problem("snapshot", path, f"holds {entry}, {problem}")


def _agree(entry: ProducerStateEntry, replayed: ProducerStateEntry) -> bool:
    """An idle producer may have returned to the broker after it had expired there."""
    if entry.last_offset < 0:
        replayed = replayed._replace(
            last_sequence=-1, last_offset=entry.last_offset, offset_delta=0
        )
        entry = entry._replace(offset_delta=0, last_sequence=-1)
    if entry.coordinator_epoch < 0:
        replayed = replayed._replace(coordinator_epoch=entry.coordinator_epoch)
    return entry == replayed
