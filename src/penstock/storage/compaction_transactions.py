"""Tells a compaction pass which batches are aborted and which transactions still have data.

Works on entries of the log's transaction indexes and on what the pass reports; reads no files.
"""

from bisect import bisect_right
from collections.abc import Iterable

from penstock.protocol.batch import TRANSACTIONAL, BatchHeader
from penstock.storage.transaction_index import AbortedTxn


class CleanedTransactionMetadata:
    """The state of one pass, updated in offset order."""

    __slots__ = ("_aborted", "_markers", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted: dict[int, list[AbortedTxn]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.last_offset):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._markers = {
            producer_id: [entry.last_offset for entry in entries]
            for producer_id, entries in self._aborted.items()
        }
        self._with_data: set[int] = set()  # producers of batches kept since their last marker

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not header.attributes & TRANSACTIONAL:
            return False
        entry = self._find_next(header.producer_id, header.base_offset)
        return entry is not None and entry.first_offset <= header.base_offset

    def keep(self, producer_id: int) -> None:
        """A batch of its current transaction stays, with records or without."""
        self._with_data.add(producer_id)

    def try_end(self, producer_id: int) -> bool:
        """End a transaction at its marker. True if anything is left of it."""
        has_data = producer_id in self._with_data
        self._with_data.discard(producer_id)
        return has_data

    def find_entry(self, marker: BatchHeader) -> AbortedTxn | None:
        entry = self._find_next(marker.producer_id, marker.last_offset - 1)
        return entry if entry is not None and entry.last_offset == marker.last_offset else None

    def _find_next(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """The producer's first aborted transaction whose marker comes after the offset."""
        markers = self._markers.get(producer_id)
        if markers is None:
            return None
        index = bisect_right(markers, offset)
        return self._aborted[producer_id][index] if index < len(markers) else None
