"""Selects the batches of a fetch that hold rows for a reader: those in its offset range that are
neither control batches nor, with read_committed, data of aborted transactions.

Looks at headers, CRCs and transaction markers, never at other records. Invariant: every selected
batch is complete and has a valid header; anything else raises CorruptAt.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from penstock.client.data_calls import AbortedTransactionStart
from penstock.protocol.batch import (
    BatchHeader,
    CorruptBatch,
    check_header,
    is_crc_valid,
    iter_headers,
)
from penstock.protocol.control import read_end_marker


class OffsetBounds(NamedTuple):
    start: int
    end: int  # exclusive


class FetchedBatch(NamedTuple):
    """A batch's header and its position in the fetched bytes."""

    position: int
    header: BatchHeader

    def view(self, fetched: memoryview) -> memoryview:
        return fetched[self.position : self.position + self.header.size]


class VisibleBatches(NamedTuple):
    batches: list[FetchedBatch]  # each has at least one record; may include rows outside the range
    next_offset: int  # everything before it has been examined


class CorruptAt(CorruptBatch):
    """A corrupt batch; everything before `offset` is fine."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def visible_batches(
    fetched: memoryview,
    wanted: OffsetBounds,
    *,
    aborted: Sequence[AbortedTransactionStart] | None,
    check_crc: bool,
) -> VisibleBatches:
    """`aborted` is the list of the fetch response, or None with read_uncommitted. Ignores an
    incomplete batch at the end."""
    batches: list[FetchedBatch] = []
    transactions = None if aborted is None else _Transactions(aborted)
    expected = 0
    try:
        for position, header in iter_headers(fetched):
            if header.base_offset >= wanted.end:
                expected = wanted.end
                break
            batch = FetchedBatch(position, header)
            _check(batch, fetched, expected, check_crc=check_crc)
            expected = header.next_offset
            if transactions is not None and transactions.hide(batch, fetched):
                continue
            if header.record_count and not header.is_control and expected > wanted.start:
                batches.append(batch)
    except CorruptBatch as error:
        raise CorruptAt(max(wanted.start, expected), error.reason) from None
    return VisibleBatches(batches, max(wanted.start, min(expected, wanted.end)))


def _check(batch: FetchedBatch, fetched: memoryview, expected: int, *, check_crc: bool) -> None:
    position, header = batch
    check_header(header, len(fetched) - position)
    if header.base_offset < expected:
        raise CorruptBatch(f"the next batch has the lower offset {header.base_offset}")
    if check_crc and not is_crc_valid(fetched, position, header.size):
        raise CorruptBatch(f"CRC of the batch's {header.size} bytes does not match")


class _Transactions:
    """The producers whose transaction is aborted, at the current batch."""

    def __init__(self, aborted: Sequence[AbortedTransactionStart]) -> None:
        self._ahead = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._aborted: set[int] = set()  # producer ids

    def hide(self, batch: FetchedBatch, fetched: memoryview) -> bool:
        header = batch.header
        if not header.has_producer:
            return False
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._aborted.add(self._ahead.pop().producer_id)
        if header.is_control:
            self._end(batch, fetched)
            return True
        return header.is_transactional and header.producer_id in self._aborted

    def _end(self, batch: FetchedBatch, fetched: memoryview) -> None:
        """An abort marker ends the aborted transaction, so the producer's next data is visible."""
        if batch.header.producer_id in self._aborted:
            marker = read_end_marker(batch.view(fetched))
            if marker is not None and not marker.commit:
                self._aborted.discard(batch.header.producer_id)
