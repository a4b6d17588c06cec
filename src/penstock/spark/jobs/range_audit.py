"""The audit of one range of a partition: fed with fetched bytes, it tells what is wrong with them
and keeps what only the driver can judge, who knows the ranges before and after. Pure.

Invariant: of every batch that begins in the range, its offsets are in `runs` once for each time
that the log has it, sound or not; a batch counts to the range in which it begins.
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

MAX_FINDINGS = 1_000  # of one range: a log that is damaged throughout is told so with fewer
_NO_EPOCH = -1


class AuditRange(NamedTuple):
    """The work of one task."""

    wanted: OffsetRange
    is_first: bool  # of its partition: a batch that begins before it and reaches into it is its own
    high_watermark: int  # of the partition: no offset can be beyond it
    gaps_are_normal: bool  # the topic is compacted


class RangeReport(NamedTuple):
    """Sent to the driver."""

    wanted: OffsetRange
    batches: int
    records: int
    markers: int
    size_bytes: int
    vacant_offsets: int  # inside of batches, left by compaction
    first_epoch: int  # of leaders; -1: no batch was seen
    last_epoch: int
    runs: list[NumberRun]  # of offsets
    producer_runs: list[ProducerRun]
    findings: list[AuditFinding]
    left_out: int  # findings beyond the most that are kept


class AuditStep(NamedTuple):
    sound: list[FetchedBatch]
    next_offset: int  # where to go on
    is_done: bool  # the range has been seen to its end
    damage: str | None  # why no batch can be found at `next_offset`


class RangeAudit:
    def __init__(self, asked: AuditRange) -> None:
        self.asked = asked
        self.is_done = not asked.wanted.size
        self.next_offset = asked.wanted.start
        self._producers = ProducerRuns(gaps_are_normal=asked.gaps_are_normal)
        self._runs: list[NumberRun] = []
        self._findings: list[AuditFinding] = []
        self._left_out = 0
        self._damaged: BatchHeader | None = None  # the batch before: how far it goes is not known
        self._decoys: set[tuple[int, int]] = set()
        self._first_epoch = self._last_epoch = _NO_EPOCH
        self._batches = self._records = self._markers = self._size_bytes = self._vacant = 0
        self._has_begun = asked.is_first

    def take(self, fetched: memoryview) -> AuditStep:
        """A reply to a fetch of `next_offset`, which moves on."""
        headers, damage = _read_headers(fetched)
        headers = self._without_resent(headers)
        sound: list[FetchedBatch] = []
        for place, placed in enumerate(headers):
            following = headers[place + 1].header if place + 1 < len(headers) else None
            if self._is_beyond(placed.header, following):
                self._settle_damaged(placed.header.base_offset)
                break
            if self._is_own(placed.header, following) and self._take_batch(
                placed, following, fetched
            ):
                sound.append(placed)
        if self._damaged is not None:
            self._go_on(self._likely_end(self._damaged))
        sound = self._with_sound_records(fetched, sound)
        for placed in sound:
            self._count(placed, fetched)
        return AuditStep(sound, self.next_offset, self.is_done, damage)

    def skip(self, until: int, kind: FindingKind, reason: str, *, is_problem: bool = True) -> None:
        """Offsets from where `take` stopped that cannot be had."""
        first = self.next_offset
        if until > first:
            self._settle_damaged(first)
            self._report(kind, first, until - 1, reason, is_problem=is_problem)
            self._note_offsets(first, until - 1)
            self._go_on(until)

    def report(self) -> RangeReport:
        if self._damaged is not None:
            self._settle_damaged(self._likely_end(self._damaged))
        return RangeReport(
            self.asked.wanted,
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
            self._left_out,
        )

    # Which batches.

    def _without_resent(self, headers: list[FetchedBatch]) -> list[FetchedBatch]:
        """Where a decoy comes first, the broker was drawn back to what has been seen, or what is
        the range's before."""
        if not self._has_begun and self._begins_with_decoy([each.header for each in headers]):
            self._decoys.add(_name(headers[0].header))
        if not headers or not self.is_decoy(headers[0].header):
            return headers
        return [
            each
            for each in headers
            if each.header.last_offset >= self.next_offset and not self.is_decoy(each.header)
        ]

    def _begins_with_decoy(self, headers: Sequence[BatchHeader]) -> bool:
        """What follows goes back, and comes to the first one's offset by itself, or the log has no
        such offset."""
        if not headers or headers[0].base_offset < self.asked.wanted.start:
            return False
        offset, others = headers[0].base_offset, headers[1:]
        if offset >= self.asked.high_watermark:
            return True
        goes_back = bool(others) and others[0].base_offset < offset
        return goes_back and any(each.base_offset <= offset <= each.last_offset for each in others)

    def is_decoy(self, header: BatchHeader) -> bool:
        """A batch, seen already, whose wrong offsets a broker may believe that looks for others."""
        return _name(header) in self._decoys

    def _is_beyond(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        end, limit = self.asked.wanted.end, self.asked.high_watermark
        is_beyond = end <= header.base_offset < limit and not self._is_astray(header, following)
        self.is_done = self.is_done or is_beyond
        return is_beyond

    def _is_astray(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Its offset is wrong, and nothing else: what follows goes on as if it were right. No CRC
        covers the offset."""
        if following is None:
            return header.base_offset >= self.asked.high_watermark
        if self.next_offset <= header.base_offset < following.base_offset:
            return False
        return following.base_offset == self.next_offset + header.last_offset_delta + 1

    def _is_own(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Batches before the first own one are the range's before; later ones are out of order."""
        self._has_begun = self._has_begun or header.base_offset >= self.asked.wanted.start
        if not self._has_begun:
            self._pass_foreign(header, following)
        return self._has_begun

    def _pass_foreign(self, header: BatchHeader, following: BatchHeader | None) -> None:
        """Whether it is sound is for another range to say: here it reaches no further than the
        next batch lets it."""
        if following is not None and following.base_offset < header.next_offset:
            self._decoys.add(_name(header))
            self._go_on(following.base_offset)
        else:
            self._go_on(header.next_offset)

    def _take_batch(
        self, placed: FetchedBatch, following: BatchHeader | None, fetched: memoryview
    ) -> bool:
        """Whether it is whole; its records are looked at later."""
        header = placed.header
        self._batches += 1
        self._size_bytes += header.size
        if self._is_astray(header, following):
            header = self._put_right(header)
        self._settle_damaged(header.base_offset)
        problem = _find_problem(placed, fetched)
        if problem is not None:
            kind, reason = problem
            self._report(kind, header.base_offset, self._likely_end(header) - 1, reason)
            self._damaged = header
            self._decoys.add(_name(placed.header))
            return False
        self._note_offsets(header.base_offset, header.last_offset)
        self._note_epoch(header)
        self._go_on(header.next_offset)
        return header.base_offset == placed.header.base_offset

    def _put_right(self, header: BatchHeader) -> BatchHeader:
        right = header._replace(base_offset=self.next_offset)
        self._decoys.add(_name(header))
        reason = f"the batch at this place says that it begins at offset {header.base_offset}"
        self._report(FindingKind.ORDER, right.base_offset, right.last_offset, reason)
        return right

    def _go_on(self, next_offset: int) -> None:
        self.next_offset = max(self.next_offset, next_offset)
        self.is_done = self.is_done or self.next_offset >= self.asked.wanted.end

    # What is kept.

    def _settle_damaged(self, next_offset: int) -> None:
        """Its own fields may be wrong: it reaches as far as the next batch lets it."""
        damaged, self._damaged = self._damaged, None
        if damaged is not None and damaged.base_offset < next_offset:
            self._note_offsets(damaged.base_offset, next_offset - 1)

    def _likely_end(self, header: BatchHeader) -> int:
        end, limit = header.next_offset, self.asked.high_watermark
        return end if header.base_offset < end <= limit else header.base_offset + 1

    def _note_offsets(self, first: int, last: int) -> None:
        if self.asked.is_first:
            first = max(first, self.asked.wanted.start)
        before = self._runs[-1] if self._runs else None
        if before is not None and before.last + 1 == first:
            self._runs[-1] = before._replace(last=last)
        elif first <= last:
            self._runs.append(NumberRun(first, last, first))

    def _note_epoch(self, header: BatchHeader) -> None:
        if self._first_epoch == _NO_EPOCH:
            self._first_epoch = header.leader_epoch
        elif header.leader_epoch < self._last_epoch:
            reason = (
                f"the batch has leader epoch {header.leader_epoch}, the one before it "
                f"{self._last_epoch}"
            )
            self._report(FindingKind.EPOCH, header.base_offset, header.last_offset, reason)
        self._last_epoch = header.leader_epoch

    def _count(self, placed: FetchedBatch, fetched: memoryview) -> None:
        header = placed.header
        self._producers.take(header)
        if header.is_control:
            self._markers += header.record_count
            return
        self._records += header.record_count
        vacant = header.last_offset_delta + 1 - header.record_count
        self._vacant += vacant
        if vacant and not self.asked.gaps_are_normal:
            for first, last in _vacant_offsets(placed, fetched):
                self._report(
                    FindingKind.MISSING, first, last, "the batch has no record of this offset"
                )

    def _with_sound_records(
        self, fetched: memoryview, batches: list[FetchedBatch]
    ) -> list[FetchedBatch]:
        if not batches or _find_bad_records(fetched, batches) is None:
            return batches
        sound = []
        for placed in batches:
            error = _find_bad_records(fetched, [placed])
            if error is None:
                sound.append(placed)
            else:
                first, last = placed.header.base_offset, placed.header.last_offset
                self._report(FindingKind.RECORDS, first, last, error.reason)
        return sound

    def _report(
        self, kind: FindingKind, first: int, last: int, reason: str, *, is_problem: bool = True
    ) -> None:
        if len(self._findings) == MAX_FINDINGS:
            self._left_out += 1
            return
        partition = self.asked.wanted.tp
        self._findings.append(AuditFinding(kind, partition, first, last, reason, is_problem))


def _read_headers(fetched: memoryview) -> tuple[list[FetchedBatch], str | None]:
    """All up to where no batch can be found, and why."""
    placed: list[FetchedBatch] = []
    try:
        for position, header in iter_headers(fetched):
            placed.append(FetchedBatch(position, header))
    except CorruptBatch as error:
        return placed, error.reason
    return placed, None


def _name(header: BatchHeader) -> tuple[int, int]:
    return header.base_offset, header.crc


def _find_problem(placed: FetchedBatch, fetched: memoryview) -> tuple[FindingKind, str] | None:
    position, header = placed
    if not is_crc_valid(fetched, position, header.size):
        return FindingKind.CRC, f"the CRC of the batch's {header.size} bytes does not match"
    try:
        # What it says of its offset is looked at elsewhere.
        check_header(header._replace(base_offset=0), len(fetched) - position)
    except CorruptBatch as error:
        return FindingKind.RECORDS, error.reason
    return None


def _find_bad_records(fetched: memoryview, batches: Sequence[FetchedBatch]) -> CorruptAt | None:
    everything = OffsetBounds(0, 2**63 - 1)
    decode = choose_decoder(None, sum(placed.header.size for placed in batches))
    with_records = [placed for placed in batches if placed.header.record_count]
    try:
        for _ in decode(fetched, with_records, everything, ("offset",)):
            pass
    except CorruptAt as error:
        return error
    return None


def _vacant_offsets(placed: FetchedBatch, fetched: memoryview) -> Iterator[tuple[int, int]]:
    expected = placed.header.base_offset
    for offset, _, _, _ in iter_keys(placed.view(fetched)):
        if offset > expected:
            yield expected, offset - 1
        expected = offset + 1
    if expected <= placed.header.last_offset:
        yield expected, placed.header.last_offset
