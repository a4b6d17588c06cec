"""Fetches every batch of a range as the cluster has it, damaged ones included; the next fetch is in
flight while a reply is audited.

Judges nothing itself. Invariant: it continues after whatever cannot be read, and terminates.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import NamedTuple

from penstock.client.data_calls import EARLIEST, FetchedPartition, FetchFrom
from penstock.client.errors import ClientError, OutOfTime, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset
from penstock.protocol.batch import BatchHeader, CorruptBatch, iter_headers
from penstock.spark.codec.visible_batches import FetchedBatch
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import SparkSourceError
from penstock.spark.jobs.findings import FindingKind
from penstock.spark.jobs.range_audit import RangeAudit
from penstock.spark.source.fetch_ahead import next_offset

_FETCH_BYTES = 8 * 1024 * 1024
_PROBE_BYTES = 64 * 1024
_MAX_WAIT_MS = 500
# A broker reports at once that it cannot read a batch; the client retries until this timeout.
_ATTEMPT_MS = 5_000
_PROBE_MS = 400
_RETRY_S = 60.0  # while brokers fail or leaders move
_UNREADABLE = "the broker finds no batch at this offset"


class AuditedReply(NamedTuple):
    """A fetch reply and its sound batches."""

    fetched: memoryview
    sound: list[FetchedBatch]


class _Damaged(Exception):
    """The broker cannot read its log at this offset."""


class RangeReader:
    """Iterates over audited replies; afterwards the audit has its report."""

    def __init__(
        self, client: BlockingClient, audit: RangeAudit, retry_s: float = _RETRY_S
    ) -> None:
        self._client = client
        self._audit = audit
        self._wanted = audit.task.wanted
        self._retry_s = retry_s
        self._ahead: tuple[int, Future[list[FetchedPartition]]] | None = None
        self._readable_from = audit.task.wanted.start  # no fetch before it can succeed

    def __iter__(self) -> Iterator[AuditedReply]:
        offset = self._wanted.start
        try:
            while not self._audit.is_done:
                yield from self._step(offset)
                following = max(self._audit.next_offset, self._readable_from)
                if following <= offset:
                    return
                offset = following
        finally:
            self._drop_ahead()

    def _step(self, offset: int) -> Iterator[AuditedReply]:
        """Audits one reply. If the audit does not advance, the range ends here."""
        try:
            fetched = self._wait(offset)
        except _Damaged:
            self._pass_damage(offset, _UNREADABLE)
            return
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pass_deleted(offset)
        elif fetched.batches:
            self._fetch_ahead(offset, fetched.batches)
            taken = self._audit.take(fetched.batches)
            yield AuditedReply(fetched.batches, taken.sound)
            if taken.damage is not None or (taken.next_offset == offset and not taken.is_done):
                self._pass_damage(taken.next_offset, taken.damage or _UNREADABLE)

    # Fetching.

    def _wait(self, offset: int) -> FetchedPartition:
        deadline = time.monotonic() + self._retry_s
        while True:
            reply = self._take_ahead(offset) or self._start(offset, _FETCH_BYTES, _ATTEMPT_MS)
            is_late = time.monotonic() >= deadline
            try:
                (fetched,) = reply.result()
            except OutOfTime as error:
                if _is_damaged(error):
                    raise _Damaged from None
                if is_late:
                    raise
                continue
            if is_late or not self._is_behind(fetched):
                return self._checked(fetched, offset)

    def _is_behind(self, fetched: FetchedPartition) -> bool:
        """A new leader may not know the high watermark yet."""
        is_empty = fetched.error is ErrorCode.NONE and not fetched.batches
        return is_empty and fetched.high_watermark < self._wanted.end

    def _start(
        self, offset: int, most_bytes: int, timeout_ms: int
    ) -> "Future[list[FetchedPartition]]":
        wanted = [FetchFrom(self._wanted.tp, Offset(offset), most_bytes)]
        return self._client.start(
            lambda client: client.fetch(
                wanted, max_wait_ms=_MAX_WAIT_MS, max_bytes=most_bytes, timeout_ms=timeout_ms
            )
        )

    def _checked(self, fetched: FetchedPartition, offset: int) -> FetchedPartition:
        if fetched.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise SparkSourceError(
                f"{self._wanted.tp} cannot be read at offset {offset}: "
                f"{fetched.error.message} ({fetched.error.name})"
            )
        return fetched

    def _fetch_ahead(self, offset: int, batches: memoryview) -> None:
        try:
            following = next_offset(batches)
        except CorruptBatch:
            return
        if following is not None and offset < following < self._wanted.end:
            self._ahead = following, self._start(following, _FETCH_BYTES, _ATTEMPT_MS)

    def _take_ahead(self, offset: int) -> "Future[list[FetchedPartition]] | None":
        ahead = self._ahead
        if ahead is None or ahead[0] != offset:
            self._drop_ahead()
            return None
        self._ahead = None
        return ahead[1]

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead[1].cancel()
            self._ahead = None

    # Skipping what cannot be read.

    def _pass_deleted(self, offset: int) -> None:
        tp = self._wanted.tp
        earliest = self._client.list_offsets({tp: EARLIEST})[tp].offset
        if earliest > offset:
            text = "deleted during the audit, by retention or DeleteRecords"
            self._audit.skip(
                min(earliest, self._wanted.end), FindingKind.DELETED, text, is_problem=False
            )

    def _pass_damage(self, offset: int, reason: str) -> None:
        """Skips to the first offset after the damage at which the broker finds a batch.

        Doubles the step until a batch is found, then bisects: a broker finds batches behind damage
        only from an index entry on.
        """
        bad, good, step = offset, offset + 1, 1
        base_offset = self._find_base(good)
        while base_offset is None:
            bad, step = good, step * 2
            good = min(offset + step, self._wanted.end)
            base_offset = self._find_base(good)
        while good - bad > 1:
            middle = (bad + good) // 2
            nearer = self._find_base(middle)
            if nearer is None:
                bad = middle
            else:
                good, base_offset = middle, nearer
        until = max(offset, min(base_offset, self._wanted.end))
        self._audit.skip(
            until, FindingKind.UNREADABLE, f"{reason}; no batch can be read before {until}"
        )
        self._readable_from = good

    def _find_base(self, offset: int, timeout_ms: int = _PROBE_MS) -> int | None:
        """The base offset of the batch the broker finds for this offset; the range's end for
        offsets beyond it."""
        if offset >= self._wanted.end:
            return self._wanted.end
        try:
            (fetched,) = self._start(offset, _PROBE_BYTES, timeout_ms).result()
            first = next(iter_headers(self._checked(fetched, offset).batches), None)
        except CorruptBatch:
            return None
        except OutOfTime as error:
            if _is_damaged(error):
                return None
            if timeout_ms == _ATTEMPT_MS:
                raise
            return self._find_base(offset, _ATTEMPT_MS)
        return None if first is None or self._is_wrong(first[1], offset) else first[1].base_offset

    def _is_wrong(self, header: BatchHeader, offset: int) -> bool:
        return header.last_offset < offset or self._audit.has_corrupt_offset(header)


def _is_damaged(error: ClientError) -> bool:
    cause = error.__cause__
    return isinstance(cause, RefusedByBroker) and cause.code is ErrorCode.CORRUPT_MESSAGE
