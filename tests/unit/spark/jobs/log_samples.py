"""A log as bytes, batch by batch, for tests to damage."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.records import Record, build_batch
from penstock.spark.jobs.range_audit import AuditRange, RangeAudit, RangeReport
from penstock.spark.jobs.verdict import Verdict, conclude
from penstock.spark.source.plan import OffsetRange

PARTITION = TopicPartition("t", 0)
SIZE = 10  # records of a batch


def batch(
    first: int,
    count: int = SIZE,
    *,
    epoch: int = 0,
    producer: int = -1,
    sequence: int = -1,
    without: Iterable[int] = (),
) -> bytearray:
    """Offsets from `first` on; `without` has those that compaction removed."""
    offsets = [number for number in range(first, first + count) if number not in set(without)]
    return build_batch(
        [
            Record(offset, 1_000 + offset, b"k%d" % (offset % 3), b"v%d" % offset)
            for offset in offsets
        ],
        base_offset=first,
        last_offset_delta=count - 1,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )


def batches(count: int) -> list[bytearray]:
    return [batch(first) for first in range(0, count * SIZE, SIZE)]


def ranges(end: int, *, cuts: Sequence[int] = (), compacted: bool = False) -> list[AuditRange]:
    edges = [0, *cuts, end]
    return [
        AuditRange(OffsetRange(PARTITION, start, stop), start == 0, end, compacted)
        for start, stop in pairwise(edges)
    ]


def read_whole(asked: AuditRange, log: Sequence[Buffer]) -> RangeReport:
    """As a broker answers: from the first batch on that reaches the offset, in one reply."""
    audit = RangeAudit(asked)
    place = next(
        (place for place, each in enumerate(log) if _last_offset(each) >= asked.wanted.start),
        len(log),
    )
    audit.take(memoryview(b"".join(log[place:])))
    return audit.report()


def audited(
    log: Sequence[Buffer], end: int, *, cuts: Sequence[int] = (), compacted: bool = False
) -> Verdict:
    asked = ranges(end, cuts=cuts, compacted=compacted)
    return conclude(asked, [read_whole(each, log) for each in asked])


def told(verdict: Verdict) -> list[tuple[str, int, int]]:
    return [
        (finding.kind.value, finding.offset, finding.last_offset) for finding in verdict.findings
    ]


def _last_offset(content: Buffer) -> int:
    base = int.from_bytes(content[:8], "big")
    return base + int.from_bytes(content[23:27], "big")
