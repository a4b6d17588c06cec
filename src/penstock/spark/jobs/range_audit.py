"""Audits one range of a partition: takes fetched bytes, reports what is wrong with them, and keeps
what only the driver can judge because it knows the neighbouring ranges. Pure.

Invariant: the offsets of every batch that starts in the range are in `runs` once for each time the
log has it, sound or not; a batch belongs to the range in which it starts.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.protocol.batch import (
    BatchHeader,
    CorruptBatch,
    check_header,
    is_crc_valid,
    iter_headers,
)
from penstock.protocol.records import iter_keys
from penstock.spark.codec.bulk_path import choose_decoder
from penstock.spark.codec.visible_batches import CorruptAt, FetchedBatch, OffsetBounds
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.numbering import NumberRun
from penstock.spark.jobs.producer_runs import ProducerRun, ProducerRuns
from penstock.spark.source.plan import OffsetRange

MAX_FINDINGS = 1_000  # per range: enough to show that a log is damaged throughout
_NO_EPOCH = -1


class AuditRange(NamedTuple):
    """The work of one task."""

    wanted: OffsetRange
    is_first: bool  # of its partition: also owns a batch that starts before it and reaches into it
    high_watermark: int  # of the partition: no offset can be at or above it
    is_compacted: bool  # gaps are normal


class RangeReport(NamedTuple):
    """A task's report to the driver."""

    wanted: OffsetRange
    batches: int
    records: int
    markers: int
    size_bytes: int
    vacant_offsets: int  # inside batches: their records were compacted away
    first_epoch: int  # leader epoch; -1: no batch was seen
    last_epoch: int
    runs: list[NumberRun]  # of offsets
    producer_runs: list[ProducerRun]
    findings: list[AuditFinding]
    omitted: int  # findings beyond MAX_FINDINGS


class AuditStep(NamedTuple):
    sound: list[FetchedBatch]
    next_offset: int  # to fetch next
    is_done: bool  # the whole range has been seen
    damage: str | None  # why no batch can be found at `next_offset`


class RangeAudit:
    """Audits the batches of one range, reply by reply; owned by one task."""

    def __init__(self, task: AuditRange) -> None:
        self.task = task
        self.is_done = not task.wanted.size
        self.next_offset = task.wanted.start
        self._producers = ProducerRuns(is_compacted=task.is_compacted)
        self._runs: list[NumberRun] = []
        self._findings: list[AuditFinding] = []
        self._omitted = 0
        self._damaged: BatchHeader | None = None  # the batch before: its end is not known yet
        self._corrupt_offset_ids: set[tuple[int, int]] = set()  # see has_corrupt_offset
        self._first_epoch = self._last_epoch = _NO_EPOCH
        self._batches = self._records = self._markers = self._size_bytes = self._vacant = 0
        self._has_begun = task.is_first

    def take(self, fetched: memoryview) -> AuditStep:
        """Audits the reply to a fetch at `next_offset`, and advances it."""
        batches, damage = _read_headers(fetched)
        batches = self._without_refetched(batches)
        sound: list[FetchedBatch] = []
        for index, batch in enumerate(batches):
            following = batches[index + 1].header if index + 1 < len(batches) else None
            if self._is_beyond(batch.header, following):
                self._close_damaged(batch.header.base_offset)
                break
            if self._is_in_range(batch.header, following) and self._take_batch(
                batch, following, fetched
            ):
                sound.append(batch)
        if self._damaged is not None:
            self._advance_to(self._likely_end(self._damaged))
        sound = self._with_sound_records(fetched, sound)
        for batch in sound:
            self._count(batch, fetched)
        return AuditStep(sound, self.next_offset, self.is_done, damage)

    def skip(self, until: int, kind: FindingKind, reason: str, *, is_problem: bool = True) -> None:
        """Reports the offsets from `next_offset` up to `until` as not readable, and skips them."""
        first = self.next_offset
        if until > first:
            self._close_damaged(first)
            self._report(kind, first, until - 1, reason, is_problem=is_problem)
            self._record_offsets(first, until - 1)
            self._advance_to(until)

    def report(self) -> RangeReport:
        if self._damaged is not None:
            self._close_damaged(self._likely_end(self._damaged))
        return RangeReport(
            self.task.wanted,
            self._batches,
            self._records,
            self._markers,
            self._size_bytes,
            self._vacant,
            self._first_epoch,
            self._last_epoch,
            self._runs,
            self._producers.runs(),
            self._findings,
            self._omitted,
        )

    # Batches of the range.

    def _without_refetched(self, batches: list[FetchedBatch]) -> list[FetchedBatch]:
        """Drops batches that were already seen, or belong to the range before.

        A reply that starts with a corrupt offset may start too early: the broker searches by
        offset and lands on that batch.
        """
        if not self._has_begun and self._starts_with_corrupt_offset(
            [batch.header for batch in batches]
        ):
            self._corrupt_offset_ids.add(_batch_id(batches[0].header))
        if not batches or not self.has_corrupt_offset(batches[0].header):
            return batches
        return [
            batch
            for batch in batches
            if batch.header.last_offset >= self.next_offset
            and not self.has_corrupt_offset(batch.header)
        ]

    def _starts_with_corrupt_offset(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether the first batch's offset is corrupt: the log has no such offset, or the batches
        that follow go back and reach that offset themselves."""
        if not headers or headers[0].base_offset < self.task.wanted.start:
            return False
        offset, others = headers[0].base_offset, headers[1:]
        if offset >= self.task.high_watermark:
            return True
        goes_back = bool(others) and others[0].base_offset < offset
        return goes_back and any(
            later.base_offset <= offset <= later.last_offset for later in others
        )

    def has_corrupt_offset(self, header: BatchHeader) -> bool:
        """Whether this batch was seen before and found to have a corrupt offset. A broker's search
        for other offsets may land on it."""
        return _batch_id(header) in self._corrupt_offset_ids

    def _is_beyond(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        end, limit = self.task.wanted.end, self.task.high_watermark
        is_beyond = end <= header.base_offset < limit and not self._is_offset_corrupt(
            header, following
        )
        self.is_done = self.is_done or is_beyond
        return is_beyond

    def _is_offset_corrupt(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Whether only the batch's offset is wrong: the batch that follows continues as if it were
        right. The CRC does not cover the base offset."""
        if following is None:
            return header.base_offset >= self.task.high_watermark
        if self.next_offset <= header.base_offset < following.base_offset:
            return False
        return following.base_offset == self.next_offset + header.last_offset_delta + 1

    def _is_in_range(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Whether the range owns the batch. Batches before its first one belong to the range
        before; later ones with lower offsets are its own, out of order."""
        self._has_begun = self._has_begun or header.base_offset >= self.task.wanted.start
        if not self._has_begun:
            self._skip_other_ranges_batch(header, following)
        return self._has_begun

    def _skip_other_ranges_batch(self, header: BatchHeader, following: BatchHeader | None) -> None:
        """Skips a batch that another range audits. It ends at the next batch at the latest."""
        if following is not None and following.base_offset < header.next_offset:
            self._corrupt_offset_ids.add(_batch_id(header))
            self._advance_to(following.base_offset)
        else:
            self._advance_to(header.next_offset)

    def _take_batch(
        self, batch: FetchedBatch, following: BatchHeader | None, fetched: memoryview
    ) -> bool:
        """Whether the batch's bytes are sound; its records are checked later."""
        header = batch.header
        self._batches += 1
        self._size_bytes += header.size
        if self._is_offset_corrupt(header, following):
            header = self._with_expected_offset(header)
        self._close_damaged(header.base_offset)
        problem = _find_problem(batch, fetched)
        if problem is not None:
            kind, reason = problem
            self._report(kind, header.base_offset, self._likely_end(header) - 1, reason)
            self._damaged = header
            self._corrupt_offset_ids.add(_batch_id(batch.header))
            return False
        self._record_offsets(header.base_offset, header.last_offset)
        self._check_leader_epoch(header)
        self._advance_to(header.next_offset)
        return header.base_offset == batch.header.base_offset

    def _with_expected_offset(self, header: BatchHeader) -> BatchHeader:
        right = header._replace(base_offset=self.next_offset)
        self._corrupt_offset_ids.add(_batch_id(header))
        reason = f"the batch at this position has base offset {header.base_offset}"
        self._report(FindingKind.ORDER, right.base_offset, right.last_offset, reason)
        return right

    def _advance_to(self, next_offset: int) -> None:
        self.next_offset = max(self.next_offset, next_offset)
        self.is_done = self.is_done or self.next_offset >= self.task.wanted.end

    # Results.

    def _close_damaged(self, next_offset: int) -> None:
        """Records the damaged batch's offsets up to the next batch: its own fields may be wrong."""
        damaged, self._damaged = self._damaged, None
        if damaged is not None and damaged.base_offset < next_offset:
            self._record_offsets(damaged.base_offset, next_offset - 1)

    def _likely_end(self, header: BatchHeader) -> int:
        end, limit = header.next_offset, self.task.high_watermark
        return end if header.base_offset < end <= limit else header.base_offset + 1

    def _record_offsets(self, first: int, last: int) -> None:
        if self.task.is_first:
            first = max(first, self.task.wanted.start)
        before = self._runs[-1] if self._runs else None
        if before is not None and before.last + 1 == first:
            self._runs[-1] = before._replace(last=last)
        elif first <= last:
            self._runs.append(NumberRun(first, last, first))

    def _check_leader_epoch(self, header: BatchHeader) -> None:
        if self._first_epoch == _NO_EPOCH:
            self._first_epoch = header.leader_epoch
        elif header.leader_epoch < self._last_epoch:
            reason = (
                f"the batch has leader epoch {header.leader_epoch}, the one before it "
                f"{self._last_epoch}"
            )
            self._report(FindingKind.EPOCH, header.base_offset, header.last_offset, reason)
        self._last_epoch = header.leader_epoch

    def _count(self, batch: FetchedBatch, fetched: memoryview) -> None:
        header = batch.header
        self._producers.take(header)
        if header.is_control:
            self._markers += header.record_count
            return
        self._records += header.record_count
        vacant = header.last_offset_delta + 1 - header.record_count
        self._vacant += vacant
        if vacant and not self.task.is_compacted:
            for first, last in _vacant_offsets(batch, fetched):
                self._report(
                    FindingKind.MISSING, first, last, "the batch has no record for this offset"
                )

    def _with_sound_records(
        self, fetched: memoryview, batches: list[FetchedBatch]
    ) -> list[FetchedBatch]:
        if not batches or _find_bad_records(fetched, batches) is None:
            return batches
        sound = []
        for batch in batches:
            error = _find_bad_records(fetched, [batch])
            if error is None:
                sound.append(batch)
            else:
                first, last = batch.header.base_offset, batch.header.last_offset
                self._report(FindingKind.RECORDS, first, last, error.reason)
        return sound

    def _report(
        self, kind: FindingKind, first: int, last: int, reason: str, *, is_problem: bool = True
    ) -> None:
        if len(self._findings) == MAX_FINDINGS:
            self._omitted += 1
            return
        tp = self.task.wanted.tp
        self._findings.append(AuditFinding(kind, tp, first, last, reason, is_problem))


def _read_headers(fetched: memoryview) -> tuple[list[FetchedBatch], str | None]:
    """All headers up to the first that cannot be parsed, and the reason."""
    batches: list[FetchedBatch] = []
    try:
        for position, header in iter_headers(fetched):
            batches.append(FetchedBatch(position, header))
    except CorruptBatch as error:
        return batches, error.reason
    return batches, None


def _batch_id(header: BatchHeader) -> tuple[int, int]:
    return header.base_offset, header.crc


def _find_problem(batch: FetchedBatch, fetched: memoryview) -> tuple[FindingKind, str] | None:
    position, header = batch
    if not is_crc_valid(fetched, position, header.size):
        return FindingKind.CRC, f"the CRC of the batch's {header.size} bytes does not match"
    try:
        # The base offset is checked elsewhere.
        check_header(header._replace(base_offset=0), len(fetched) - position)
    except CorruptBatch as error:
        return FindingKind.RECORDS, error.reason
    return None


def _find_bad_records(fetched: memoryview, batches: Sequence[FetchedBatch]) -> CorruptAt | None:
    everything = OffsetBounds(0, 2**63 - 1)
    decode = choose_decoder(None, sum(batch.header.size for batch in batches))
    with_records = [batch for batch in batches if batch.header.record_count]
    try:
        for _ in decode(fetched, with_records, everything, ("offset",)):
            pass
    except CorruptAt as error:
        return error
    return None


def _vacant_offsets(batch: FetchedBatch, fetched: memoryview) -> Iterator[tuple[int, int]]:
    expected = batch.header.base_offset
    for offset, _, _, _ in iter_keys(batch.view(fetched)):
        if offset > expected:
            yield expected, offset - 1
        expected = offset + 1
    if expected <= batch.header.last_offset:
        yield expected, batch.header.last_offset
