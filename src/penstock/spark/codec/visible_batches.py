"""Which batches of a fetch hold rows for a reader: those in its range of offsets that are neither
control batches nor, with read_committed, data of aborted transactions.

Looks at headers, CRCs and end markers, never at other records. Invariant: every batch that passes
here is whole and its header makes sense; what does not raises CorruptAt.
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
    """A batch and where in the fetched bytes it begins."""

    position: int
    header: BatchHeader

    def view(self, fetched: memoryview) -> memoryview:
        return fetched[self.position : self.position + self.header.size]


class VisibleBatches(NamedTuple):
    batches: list[FetchedBatch]  # each with at least one record; rows outside of the range included
    next_offset: int  # all before it has been looked at


class CorruptAt(CorruptBatch):
    """A batch that cannot be read; all before `offset` could."""

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
    """`aborted` is what came with the fetch, None where uncommitted data is read too. A batch that
    is cut off at the end is ignored."""
    batches: list[FetchedBatch] = []
    transactions = None if aborted is None else _Transactions(aborted)
    expected = 0
    try:
        for position, header in iter_headers(fetched):
            if header.base_offset >= wanted.end:
                expected = wanted.end
                break
            placed = FetchedBatch(position, header)
            _check(placed, fetched, expected, check_crc=check_crc)
            expected = header.next_offset
            if transactions is not None and transactions.hide(placed, fetched):
                continue
            if header.record_count and not header.is_control and expected > wanted.start:
                batches.append(placed)
    except CorruptBatch as error:
        raise CorruptAt(max(wanted.start, expected), error.reason) from None
    return VisibleBatches(batches, max(wanted.start, min(expected, wanted.end)))


def _check(placed: FetchedBatch, fetched: memoryview, expected: int, *, check_crc: bool) -> None:
    position, header = placed
    check_header(header, len(fetched) - position)
    if header.base_offset < expected:
        raise CorruptBatch(f"a batch of offset {header.base_offset} follows, which is earlier")
    if check_crc and not is_crc_valid(fetched, position, header.size):
        raise CorruptBatch(f"CRC of the batch's {header.size} bytes does not match")


class _Transactions:
    """Which producers' transactions are known to be aborted at the batch that is looked at."""

    def __init__(self, aborted: Sequence[AbortedTransactionStart]) -> None:
        self._ahead = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._aborted: set[int] = set()  # producer ids

    def hide(self, placed: FetchedBatch, fetched: memoryview) -> bool:
        header = placed.header
        if not header.has_producer:
            return False
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._aborted.add(self._ahead.pop().producer_id)
        if header.is_control:
            self._end(placed, fetched)
            return True
        return header.is_transactional and header.producer_id in self._aborted

    def _end(self, placed: FetchedBatch, fetched: memoryview) -> None:
        """An abort marker ends the aborted transaction: what its producer writes next counts."""
        if placed.header.producer_id in self._aborted:
            marker = read_end_marker(placed.view(fetched))
            if marker is not None and not marker.commit:
                self._aborted.discard(placed.header.producer_id)
