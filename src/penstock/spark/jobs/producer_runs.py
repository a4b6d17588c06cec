"""Sequences of idempotent producers, read from batch headers: collected by a task for its range,
judged on the driver for a whole partition. Pure.

A producer whose batches came once and in order has one run per range, however many batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import MAX_SEQUENCE, BatchHeader
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.numbering import Anomaly, Flaw, NumberRun, find_anomalies

_SEQUENCES = MAX_SEQUENCE + 1  # sequences wrap around to 0


class ProducerRun(NamedTuple):
    """Consecutive sequences of one producer epoch."""

    producer_id: int
    producer_epoch: int
    first: int
    length: int
    offset: int  # of the first
    last_offset: int

    @property
    def next_sequence(self) -> int:
        return (self.first + self.length) % _SEQUENCES


class ProducerRuns:
    """Takes every sound batch of a range, in log order."""

    def __init__(self, *, is_compacted: bool) -> None:
        self._gaps_are_normal = is_compacted  # compaction removes batches
        self._open: dict[int, ProducerRun] = {}
        self._highest: dict[int, int] = {}  # per producer: one past the epoch's highest sequence
        self._done: list[ProducerRun] = []

    def take(self, header: BatchHeader) -> None:
        if not header.has_producer or header.base_sequence < 0:
            return
        producer = header.producer_id
        run = _of_batch(header)
        before = self._open.get(producer)
        if before is None or before.producer_epoch != run.producer_epoch:
            self._start(run)
        elif self._continues(before, run):
            self._open[producer] = _joined(before, run)
            self._highest[producer] = run.next_sequence
        else:
            self._break(before, run)

    def runs(self) -> list[ProducerRun]:
        """All runs in log order."""
        return sorted([*self._done, *self._open.values()], key=lambda run: run.offset)

    def _continues(self, before: ProducerRun, run: ProducerRun) -> bool:
        ahead = _distance(before.next_sequence, run.first)
        is_behind = _distance(self._highest[before.producer_id], before.next_sequence) < 0
        return not is_behind and (ahead == 0 or (ahead > 0 and self._gaps_are_normal))

    def _start(self, run: ProducerRun) -> None:
        before = self._open.get(run.producer_id)
        if before is not None:
            self._done.append(before)
        self._open[run.producer_id] = run
        self._highest[run.producer_id] = run.next_sequence

    def _break(self, before: ProducerRun, run: ProducerRun) -> None:
        highest = self._highest[run.producer_id]
        self._done.append(before)
        self._open[run.producer_id] = run
        if _distance(highest, run.next_sequence) > 0:
            self._highest[run.producer_id] = run.next_sequence


def _of_batch(header: BatchHeader) -> ProducerRun:
    return ProducerRun(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta + 1,
        header.base_offset,
        header.last_offset,
    )


def _joined(before: ProducerRun, run: ProducerRun) -> ProducerRun:
    length = before.length + _distance(before.next_sequence, run.first) + run.length
    return before._replace(length=length, last_offset=run.last_offset)


def _distance(start: int, end: int) -> int:
    """How far `end` is ahead of `start`, negative if behind; sequences wrap around."""
    ahead = (end - start) % _SEQUENCES
    return ahead if ahead < _SEQUENCES // 2 else ahead - _SEQUENCES


# On the driver.


def judge_producers(
    tp: TopicPartition,
    runs: Iterable[ProducerRun],
    *,
    is_compacted: bool,
    lost: Sequence[tuple[int, int]] = (),
) -> Iterator[AuditFinding]:
    """Judges the runs of all ranges of a partition, given in log order.

    `lost` has (first, last) of offset ranges that are already reported, so that their missing
    sequences are not reported again.
    """
    for producer_runs in _by_producer(runs).values():
        for epoch_runs in _by_epoch(producer_runs):
            yield from _judge_epoch(tp, epoch_runs, is_compacted, lost)
        yield from _older_epochs(tp, producer_runs)


def _by_producer(runs: Iterable[ProducerRun]) -> dict[int, list[ProducerRun]]:
    grouped: dict[int, list[ProducerRun]] = {}
    for run in runs:
        grouped.setdefault(run.producer_id, []).append(run)
    return grouped


def _by_epoch(runs: Sequence[ProducerRun]) -> Iterable[list[ProducerRun]]:
    grouped: dict[int, list[ProducerRun]] = {}
    for run in runs:
        grouped.setdefault(run.producer_epoch, []).append(run)
    return grouped.values()


def _judge_epoch(
    tp: TopicPartition,
    runs: Sequence[ProducerRun],
    is_compacted: bool,
    lost: Sequence[tuple[int, int]],
) -> Iterator[AuditFinding]:
    last_offsets = {run.offset: run.last_offset for run in runs}
    for anomaly in find_anomalies(_unwrapped(runs)):
        if anomaly.flaw is Flaw.MISSING and (is_compacted or _is_lost(anomaly, runs, lost)):
            continue
        last_offset = min(
            last_offsets.get(anomaly.offset, anomaly.offset),
            anomaly.offset + anomaly.last - anomaly.first,
        )
        yield _finding(tp, runs[0], anomaly, last_offset)


def _is_lost(
    anomaly: Anomaly, runs: Iterable[ProducerRun], lost: Iterable[tuple[int, int]]
) -> bool:
    """Whether the missing sequences fit into the lost offsets just before the gap shows."""
    before = max((run.last_offset for run in runs if run.last_offset < anomaly.offset), default=-1)
    lost_offsets = sum(
        last - first + 1 for first, last in lost if before < first and last < anomaly.offset
    )
    return lost_offsets > anomaly.last - anomaly.first


def _unwrapped(runs: Iterable[ProducerRun]) -> Iterator[NumberRun]:
    """Sequences as numbers that keep growing where sequences wrap around."""
    position: int | None = None
    for run in runs:
        first = run.first if position is None else position + _distance(position, run.first)
        yield NumberRun(first, first + run.length - 1, run.offset)
        position = first + run.length


def _finding(
    tp: TopicPartition, producer: ProducerRun, anomaly: Anomaly, last_offset: int
) -> AuditFinding:
    who = f"producer {producer.producer_id} (epoch {producer.producer_epoch})"
    what = _numbers(anomaly)
    offset = anomaly.offset
    match anomaly.flaw:
        case Flaw.MISSING:
            text = f"{what} of {who} are missing before this record"
            return AuditFinding(FindingKind.MISSING, tp, offset, offset, text)
        case Flaw.LATE:
            text = f"{what} of {who} come after higher ones, at offset {anomaly.behind}"
            return AuditFinding(FindingKind.ORDER, tp, offset, last_offset, text)
        case Flaw.REPEATED:
            text = f"{what} of {who} appear a second time"
            return AuditFinding(FindingKind.DUPLICATE, tp, offset, last_offset, text)


def _numbers(anomaly: Anomaly) -> str:
    first, last = anomaly.first % _SEQUENCES, anomaly.last % _SEQUENCES
    return f"sequences {first} to {last}"


def _older_epochs(tp: TopicPartition, runs: Sequence[ProducerRun]) -> Iterator[AuditFinding]:
    latest = -1
    for run in runs:
        if run.producer_epoch < latest:
            text = (
                f"producer {run.producer_id} wrote with epoch {run.producer_epoch} after epoch "
                f"{latest} had started"
            )
            yield AuditFinding(FindingKind.EPOCH, tp, run.offset, run.last_offset, text)
        latest = max(latest, run.producer_epoch)
