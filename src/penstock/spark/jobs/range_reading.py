"""Every batch of a range as the cluster has it, damaged ones included; the next request is under
way while one reply is looked at.

Judges nothing itself. Invariant: it goes on behind whatever cannot be read, and comes to an end.
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
# A broker says at once that it cannot read a batch, and the client asks again until this is over.
_ATTEMPT_MS = 5_000
_PROBE_MS = 400
_PATIENCE_S = 60.0  # with brokers that fail or move
_UNREADABLE = "the broker finds no batch there"


class AuditedReply(NamedTuple):
    """A reply, and which of its batches are sound."""

    fetched: memoryview
    sound: list[FetchedBatch]


class _Damaged(Exception):
    """The broker cannot read what it has there."""


class RangeReader:
    """`for looked in RangeReader(client, audit)`; afterwards the audit has its report."""

    def __init__(
        self, client: BlockingClient, audit: RangeAudit, patience_s: float = _PATIENCE_S
    ) -> None:
        self._client = client
        self._audit = audit
        self._wanted = audit.asked.wanted
        self._patience_s = patience_s
        self._ahead: tuple[int, Future[list[FetchedPartition]]] | None = None
        self._readable_from = audit.asked.wanted.start  # no fetch before it can succeed

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
        """One reply. If it brings the audit no further, there is no more."""
        try:
            fetched = self._wait(offset)
        except _Damaged:
            self._pass_damage(offset, _UNREADABLE)
            return
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pass_deleted(offset)
        elif fetched.batches:
            self._ask_ahead(offset, fetched.batches)
            taken = self._audit.take(fetched.batches)
            yield AuditedReply(fetched.batches, taken.sound)
            if taken.damage is not None or (taken.next_offset == offset and not taken.is_done):
                self._pass_damage(taken.next_offset, taken.damage or _UNREADABLE)

    # Asking.

    def _wait(self, offset: int) -> FetchedPartition:
        deadline = time.monotonic() + self._patience_s
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
        """A leader that is new may not know yet how far the log goes."""
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

    def _ask_ahead(self, offset: int, batches: memoryview) -> None:
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

    # Going on behind what cannot be read.

    def _pass_deleted(self, offset: int) -> None:
        partition = self._wanted.tp
        earliest = self._client.list_offsets({partition: EARLIEST})[partition].offset
        if earliest > offset:
            text = "deleted while the audit ran, by retention or on demand"
            self._audit.skip(
                min(earliest, self._wanted.end), FindingKind.DELETED, text, is_problem=False
            )

    def _pass_damage(self, offset: int, reason: str) -> None:
        """Step further and further until a batch is found, then back to the first such offset: a
        broker finds batches behind damage only from where its index points to."""
        bad, good, step = offset, offset + 1, 1
        found = self._find_base(good)
        while found is None:
            bad, step = good, step * 2
            good = min(offset + step, self._wanted.end)
            found = self._find_base(good)
        while good - bad > 1:
            middle = (bad + good) // 2
            nearer = self._find_base(middle)
            if nearer is None:
                bad = middle
            else:
                good, found = middle, nearer
        until = max(offset, min(found, self._wanted.end))
        self._audit.skip(
            until, FindingKind.UNREADABLE, f"{reason}; no batch can be read before {until}"
        )
        self._readable_from = good

    def _find_base(self, offset: int, timeout_ms: int = _PROBE_MS) -> int | None:
        """Where the batch begins that is found for this offset; the end, which nobody looks for."""
        if offset >= self._wanted.end:
            return self._wanted.end
        try:
            (fetched,) = self._start(offset, _PROBE_BYTES, timeout_ms).result()
            found = next(iter_headers(self._checked(fetched, offset).batches), None)
        except CorruptBatch:
            return None
        except OutOfTime as error:
            if _is_damaged(error):
                return None
            if timeout_ms == _ATTEMPT_MS:
                raise
            return self._find_base(offset, _ATTEMPT_MS)
        return None if found is None or self._is_wrong(found[1], offset) else found[1].base_offset

    def _is_wrong(self, found: BatchHeader, offset: int) -> bool:
        return found.last_offset < offset or self._audit.is_decoy(found)


def _is_damaged(error: ClientError) -> bool:
    cause = error.__cause__
    return isinstance(cause, RefusedByBroker) and cause.code is ErrorCode.CORRUPT_MESSAGE
