"""The expected content of a log, as plain lists: batches, epochs, producers, transactions.

No files and no code of the log: the property test compares the segmented engine with this.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import TopicId
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import Record, iter_records


class Stored(NamedTuple):
    header: BatchHeader
    content: bytes
    records: tuple[Record, ...]

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


def stored(content: bytes) -> Stored:
    return Stored(read_header(content), content, tuple(iter_records(content)))


@dataclass(slots=True)
class Producer:
    epoch: int
    window: list[tuple[int, int, int, int]] = field(default_factory=list)  # sequences, offsets
    coordinator_epoch: int = -1
    marker: int = -1  # offset of the last marker
    open_since: int | None = None


class Ended(NamedTuple):
    """A completed transaction."""

    producer_id: int
    first: int
    marker: int
    aborted: bool


@dataclass(slots=True)
class Model:
    """Batches are never dropped at the front; consumers see them from `start` on."""

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    end: int = 0
    durable: int = 0  # batches below must survive a power cut
    epochs: list[tuple[int, int]] = field(default_factory=list)
    checkpointed_start: int = 0

    def copy(self) -> "Model":
        return replace(self, batches=list(self.batches), epochs=list(self.epochs))

    def visible(self, start: int | None = None) -> list[Stored]:
        low = self.start if start is None else start
        return [batch for batch in self.batches if batch.last >= low]

    def required(self) -> list[Stored]:
        return [batch for batch in self.batches if batch.last < self.durable]

    def append(self, batch: Stored) -> None:
        self.batches.append(batch)
        self.end = batch.last + 1
        self.begin_epoch(batch.header.leader_epoch, batch.base)

    def begin_epoch(self, epoch: int, start: int) -> None:
        if self.epochs and self.epochs[-1][0] == epoch:
            return
        self.epochs = [(e, s) for e, s in self.epochs if e < epoch and s < start]
        self.epochs.append((epoch, start))

    def truncate(self, offset: int) -> None:
        """The log ends after the last batch that is entirely below the offset."""
        if offset < self.end:
            self.batches = [batch for batch in self.batches if batch.last < offset]
            self.end = self.batches[-1].last + 1 if self.batches else self.start
        self.settle()

    def settle(self) -> None:
        self.start = min(self.start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.durable = min(self.durable, self.end)
        self.checkpointed_start = min(self.checkpointed_start, self.end)
        self.epochs = [(e, s) for e, s in self.epochs if s < self.end]

    def restart(self, offset: int) -> None:
        self.batches, self.epochs = [], []
        self.start = self.high_watermark = self.end = self.durable = offset
        self.checkpointed_start = min(self.checkpointed_start, offset)

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, offset)
        covering = [entry for entry in self.epochs if entry[1] <= offset][-1:]
        moved = [(epoch, offset) for epoch, _ in covering]
        self.epochs = moved + [entry for entry in self.epochs if entry[1] > offset]

    def find_by_time(self, timestamp_ms: int) -> Record | None:
        for batch in self.visible():
            for record in batch.records:
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                    return record
        return None

    def find_max_timestamp(self) -> Record | None:
        records = [r for b in self.visible() for r in b.records if r.offset >= self.start]
        best = max((r.timestamp_ms for r in records), default=-1)
        return None if best < 0 else next(r for r in records if r.timestamp_ms == best)


@dataclass(slots=True)
class Incarnation:
    """The expected state of a deleted log."""

    topic_id: TopicId
    model: Model
    ghosts: list[Model]
    producers: dict[int, Producer]
    ended: list[Ended]
    epoch: int
    max_start: int
    murky_below: int
    is_compacted: bool
    is_compacting: bool  # at its deletion: files may be old or new


def replay(batches: list[Stored]) -> tuple[dict[int, Producer], list[Ended]]:
    """The producers and transactions that these batches result in."""
    producers: dict[int, Producer] = {}
    ended: list[Ended] = []
    for batch in batches:
        if batch.header.producer_id >= 0:
            follow(producers, ended, batch)
    return producers, ended


def follow(producers: dict[int, Producer], ended: list[Ended], batch: Stored) -> None:
    header = batch.header
    producer = producers.setdefault(header.producer_id, Producer(header.producer_epoch))
    marker = read_end_marker(batch.content)
    if header.is_control and marker is None:
        return
    if producer.epoch != header.producer_epoch:
        producer.epoch, producer.window = header.producer_epoch, []
    if marker is None:
        window = (header.base_sequence, header.last_sequence, batch.base, batch.last)
        producer.window = [*producer.window[-4:], window]
        if header.is_transactional and producer.open_since is None:
            producer.open_since = batch.base
        return
    producer.coordinator_epoch = marker.coordinator_epoch
    producer.marker = batch.base
    if producer.open_since is not None:
        first, producer.open_since = producer.open_since, None
        ended.append(Ended(header.producer_id, first, batch.base, not marker.commit))


def find_hole(before: list[Stored], after: list[Stored], *, end_of_decided: int) -> str | None:
    """Why `after` cannot be a compaction of `before`; None if it can."""
    old = {record.offset: (batch, record) for batch in before for record in batch.records}
    kept = {record.offset: record for batch in after for record in batch.records}
    spans = [(batch.base, batch.last) for batch in after]
    if any(later[0] <= earlier[1] for earlier, later in pairwise(spans)):
        return "offsets do not increase"
    for offset, record in kept.items():
        if offset not in old or old[offset][1][1:] != record[1:]:
            return f"record {record} was never there"
    return _find_lost(before, kept, end_of_decided)


def _find_lost(before: list[Stored], kept: dict[int, Record], end_of_decided: int) -> str | None:
    aborted = [ended for ended in replay(before)[1] if ended.aborted]
    latest: dict[bytes, Record] = {}
    for batch in before:
        header = batch.header
        if header.is_control:
            continue
        is_void = header.is_transactional and any(
            a.producer_id == header.producer_id and a.first <= batch.base < a.marker
            for a in aborted
        )
        for record in batch.records:
            if batch.last >= end_of_decided and record.offset not in kept:
                return f"record {record} at or above {end_of_decided} is gone"
            if not is_void and record.key is not None:
                latest[record.key] = record
    for record in latest.values():
        if record.value is not None and record.offset not in kept:
            return f"record {record}, the latest of its key, is gone"
    return None
