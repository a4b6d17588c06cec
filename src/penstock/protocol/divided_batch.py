"""Divides a batch into the records that are due and those that wait. Pure.

What is left keeps the batch's offsets and sequences, as after compaction, so that its producer's
state follows from its header. Only topics that allow delays are looked into.
"""

from typing import NamedTuple

from penstock.protocol.batch import Buffer, read_header
from penstock.protocol.delay_headers import (
    CancelRequest,
    DelayRequest,
    InvalidDelay,
    find_delay_request,
)
from penstock.protocol.records import Record, iter_records, replace_records, walk_records

_IN_EVERY_NAME = b"penstock-de"  # the headers that matter begin so


class InvalidDelayedRecord(InvalidDelay):
    """`index`: which record of the batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class DividedBatch(NamedTuple):
    left: bytearray | None  # None: every record waits or cancels one
    asking: list[tuple[Record, DelayRequest | CancelRequest]]  # the others, in their order

    @property
    def delayed(self) -> list[tuple[Record, DelayRequest]]:
        return [
            (record, wanted) for record, wanted in self.asking if isinstance(wanted, DelayRequest)
        ]

    @property
    def cancels(self) -> list[CancelRequest]:
        return [wanted for _, wanted in self.asking if isinstance(wanted, CancelRequest)]


def may_divide(batch: Buffer, *, limit: int) -> tuple[bool, int]:
    """Whether a record may ask for something, nearly always not; and the decompressed bytes."""
    encoded, _ = walk_records(batch, limit=limit)
    return _IN_EVERY_NAME in encoded, len(encoded)


def divide_batch(batch: Buffer, *, now_ms: int, limit: int | None = None) -> DividedBatch | None:
    """None: all records are due, as nearly always. `limit` bounds the decompressed bytes."""
    encoded, walk = walk_records(batch, limit=limit)
    if _IN_EVERY_NAME not in encoded:
        return None
    asking: list[tuple[Record, DelayRequest | CancelRequest]] = []
    left: list[bytes] = []
    latest_ms, start = -1, 0
    records = zip(iter_records(batch, limit=limit), walk, strict=True)
    for index, (record, (_, timestamp_ms, _, _, _, end)) in enumerate(records):
        wanted = _find(index, record, now_ms)
        if wanted is not None:
            asking.append((record, wanted))
        else:
            left.append(encoded[start:end])
            latest_ms = max(latest_ms, timestamp_ms)
        start = end
    if not asking:
        return None
    return DividedBatch(_rebuild(batch, left, latest_ms), asking)


def _find(index: int, record: Record, now_ms: int) -> DelayRequest | CancelRequest | None:
    try:
        return find_delay_request(record.headers, now_ms=now_ms)
    except InvalidDelay as error:
        raise InvalidDelayedRecord(index, str(error)) from None


def _rebuild(batch: Buffer, left: list[bytes], latest_ms: int) -> bytearray | None:
    if not left:
        return None
    return replace_records(
        read_header(batch), b"".join(left), record_count=len(left), max_timestamp_ms=latest_ms
    )
