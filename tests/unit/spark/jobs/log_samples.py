"""A log as a list of encoded batches, for tests to damage."""

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
    """Build a batch of offsets from `first` on; compaction has removed those in `without`."""
    offsets = [offset for offset in range(first, first + count) if offset not in set(without)]
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


def read_whole(task: AuditRange, log: Sequence[Buffer]) -> RangeReport:
    """Audit a broker's response: from the first batch that reaches the offset to the end."""
    audit = RangeAudit(task)
    index = next(
        (index for index, batch in enumerate(log) if _last_offset(batch) >= task.wanted.start),
        len(log),
    )
    audit.take(memoryview(b"".join(log[index:])))
    return audit.report()


def audited(
    log: Sequence[Buffer], end: int, *, cuts: Sequence[int] = (), compacted: bool = False
) -> Verdict:
    tasks = ranges(end, cuts=cuts, compacted=compacted)
    return conclude(tasks, [read_whole(task, log) for task in tasks])


def reported(verdict: Verdict) -> list[tuple[str, int, int]]:
    return [
        (finding.kind.value, finding.offset, finding.last_offset) for finding in verdict.findings
    ]


def _last_offset(content: Buffer) -> int:
    base = int.from_bytes(content[:8], "big")
    return base + int.from_bytes(content[23:27], "big")
