"""The entries of one partition in a commit log, and how cuts and replays change them.

`CommitLogPartition` adds appends and reads for clients. One owner thread. Invariant: the log ends
after its last entry, or at its start if it has none.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.config.log_config import LogConfig
from penstock.io.disk import Buffer, Disk, read_fully
from penstock.model.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.storage.commit_log.commit_log import CommitLog, CommitLogFile
from penstock.storage.commit_log.consume_queue import ConsumeQueue, QueueEntry
from penstock.storage.commit_log.frames import (
    EPOCH_START,
    LAST_OFFSET,
    NO_POSITION,
    FrameEnding,
    FrameKind,
)
from penstock.storage.commit_log.partition_state import ProducersAt, StoredPartition
from penstock.storage.errors import CorruptRecords, LogFenced, OffsetOutOfRange
from penstock.storage.handles import Handles, Lease
from penstock.storage.leader_epoch_cache import LeaderEpochCache
from penstock.storage.producer_replay import apply_batch
from penstock.storage.producer_snapshot import decode, encode
from penstock.storage.producer_state_manager import ProducerStateManager
from penstock.storage.transaction_index import AbortedTxn

_SNAPSHOTS_KEPT = 3


class PartitionHome(Protocol):
    """The log directory of a partition, as its log sees it."""

    commit_log: CommitLog
    path: str
    is_staging: bool  # frames of a request of several partitions, which are written at its end

    def stage(self, log: "PartitionEntries", kind: FrameKind, payload: Buffer) -> int: ...
    def write(self) -> None: ...
    def note_dirty(self, log: "PartitionEntries") -> None: ...
    def fail(self, error: OSError) -> None: ...
    def cut(self, log: "PartitionEntries", end_offset: Offset) -> None: ...
    def note_ending(self, ending: FrameEnding, position: int) -> None: ...


class PartitionEntries:
    """Owned by its engine's owner thread. Made empty; replay fills it."""

    def __init__(
        self,
        *,
        disk: Disk,
        handles: Handles,
        home: PartitionHome,
        number: int,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.number = number  # of the partition in its commit log; never used again
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(0)  # moves back only with a truncation
        self.durable_offset = Offset(0)  # everything below survives a power cut
        self.dirty_since_ms: int | None = None  # the first append that is not durable yet
        self.generation = 0  # counts cuts: a flush begun before one promises nothing after it
        self.cleaned_offset = Offset(0)  # compaction has processed everything below
        self.is_compacting = False  # batches are being replaced: other jobs wait
        self.uncleanable: str | None = None  # why compaction gave this log up until a restart
        self.delete_horizon_ms: int | None = None  # when a tombstone may be dropped; None: unknown
        self.failure: OSError | None = None  # the first write error; no append after it
        self.is_retired = False  # deleted or closed
        self.queue = ConsumeQueue(handles)
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStateManager(str(tp))
        self.appended_bytes = 0
        self._live: dict[int, int] = {}
        self._live_base = NO_POSITION  # of the file of the batches that are not in `_live` yet
        self._counted_bytes = 0  # of `appended_bytes`: those that are
        self.last_frame = NO_POSITION
        self.state_frame = NO_POSITION  # the one that would create this partition in a replay
        self.saved_high_watermark = 0  # the last one that is in a frame
        # Compaction and look-ups by segment see the log as if it rolled.
        self.segment_base = Offset(0)
        self.segment_bytes = 0
        self.segment_first_ms = NO_TIMESTAMP
        self.opened_ms = now_ms  # the age of records without timestamps counts from here
        self.is_changed = True  # since its state was last encoded
        self.encoded_state: tuple[str, bytes] = ("", b"")  # name of the queue's file, content
        self.aborted_txns: list[AbortedTxn] = []
        self.snapshots: list[ProducersAt] = []
        self._disk = disk
        self._handles = handles
        self.home = home
        self._commit_log = home.commit_log
        self._latest_epoch = -1
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self._segment_bytes_limit = config.segment_bytes
        self._segment_ms_limit = config.segment_ms
        if config.compact:
            self._segment_ms_limit = min(config.segment_ms, config.max_compaction_lag_ms)

    @property
    def directory(self) -> str:
        """A name within the log directory, as the folder of a segmented log has."""
        return f"{self.home.path}/{self.tp}"

    # -- batches ---------------------------------------------------------------------------

    def take_in(
        self,
        located: Sequence[tuple[int, BatchHeader]],
        batches: memoryview,
        position: int,
        now_ms: int | None,
    ) -> None:
        """Note the batches of one frame, whose payload is at `position`."""
        for at, header in located:
            self.note_batch(
                position + at,
                header.size,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
            self.follow_epoch(header)
            if header.producer_id >= 0:
                self.follow_producer(header, batches[at : at + header.size], now_ms)

    def note_batch(
        self, position: int, size: int, base_offset: int, last_delta: int, max_timestamp: int
    ) -> None:
        """A batch is in the commit log at this position: it is the log's last one now."""
        self.queue.append(base_offset, last_delta, position, size, max_timestamp)
        self.log_end_offset = Offset(base_offset + last_delta + 1)
        self.is_changed = True
        file_base = self._commit_log.active.base
        if position < file_base:
            file_base = self._commit_log.get_file(position).base  # in a replay
        if file_base != self._live_base:
            self._count_live()
            self._live_base = file_base
        self.appended_bytes += size
        segment_bytes = self.segment_bytes
        if not segment_bytes:
            self.segment_first_ms = TimestampMs(max_timestamp)
        elif (
            segment_bytes + size > self._segment_bytes_limit
            or max_timestamp - self.segment_first_ms > self._segment_ms_limit
        ):
            self._roll(Offset(base_offset))
            segment_bytes = 0
            self.segment_first_ms = TimestampMs(max_timestamp)
        self.segment_bytes = segment_bytes + size

    def roll(self, now_ms: int = 0) -> None:
        """Whatever was appended may be compacted from now on."""
        self._roll(self.log_end_offset)

    def _roll(self, base_offset: Offset) -> None:
        self.segment_base, self.segment_bytes = base_offset, 0
        self.segment_first_ms = NO_TIMESTAMP

    @property
    def live(self) -> dict[int, int]:
        """The bytes of live batches by the base of their commit log file."""
        self._count_live()
        return self._live

    @property
    def size_bytes(self) -> int:
        return sum(self.live.values())

    def _count_live(self) -> None:
        """Not with each append, because few look."""
        size = self.appended_bytes - self._counted_bytes
        if size:
            self._live[self._live_base] = self._live.get(self._live_base, 0) + size
            self._counted_bytes = self.appended_bytes

    def _add_live(self, file: CommitLogFile, size: int) -> None:
        live = self.live
        live[file.base] = live.get(file.base, 0) + size

    def _remove_live(self, position: int, size: int) -> None:
        live = self.live
        file = self._commit_log.find_file(position)
        if file is not None:
            base = file.base
        else:  # a replay only: the file went after the batch had moved
            base = max(base for base in live if base <= position)
        live[base] -= size
        if not live[base]:
            del live[base]

    # -- producers and epochs --------------------------------------------------------------

    def follow_producer(self, header: BatchHeader, content: memoryview, now_ms: int | None) -> None:
        """Apply a stored batch to producer state and, if it is an abort, to the index of those."""
        aborted = apply_batch(self.producers, header, content, now_ms)  # type: ignore[arg-type]
        if aborted is not None:
            self.aborted_txns.append(aborted)

    def follow_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self._latest_epoch:
            self._assign_epoch(header.leader_epoch, header.base_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        assert epoch >= self._latest_epoch, f"{self.tp}: epoch {epoch} is a former leader's"
        self.epochs.assign(epoch, start_offset)
        self._latest_epoch = epoch
        self.is_changed = True

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Batches carry `epoch` from here on; it is assigned before the first one (KAFKA-7415)."""
        if epoch == self._latest_epoch:
            return
        assert epoch > self._latest_epoch, f"{self.tp}: epoch {epoch} is a former leader's"
        if self.failure is None:
            self.write_frame(FrameKind.EPOCH, EPOCH_START.pack(epoch, self.log_end_offset))
        self._assign_epoch(epoch, self.log_end_offset)

    def replay_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch > self._latest_epoch:
            self._assign_epoch(epoch, start_offset)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._latest_epoch)

    def take_snapshot(self) -> None:
        """Keep the producers as they are now: the newest snapshot at the high watermark or below,
        where cuts end, and those after it."""
        taken = ProducersAt(self.log_end_offset, encode(self.producers.producers()))
        kept = [snapshot for snapshot in self.snapshots if snapshot.offset < taken.offset]
        while len(kept) > 1 and (
            kept[1].offset <= self.high_watermark or len(kept) >= _SNAPSHOTS_KEPT
        ):
            del kept[0 if kept[1].offset <= self.high_watermark else -1]
        self.snapshots = [*kept, taken]

    def rebuild_producers(self, now_ms: int | None) -> None:
        """The producers at the log's end: from the newest snapshot, then batch by batch."""
        end_offset = self.log_end_offset
        offset, content = self.snapshots[-1] if self.snapshots else (0, b"")
        self.producers.load(decode(content) if content else [], offset, now_ms)
        self.aborted_txns = [
            entry for entry in self.aborted_txns if entry.last_offset < min(offset, end_offset)
        ]
        for index in range(self.queue.find(offset), self.queue.end):
            entry = self.queue.entry(index)
            header = self.header_of(entry)
            if header.producer_id >= 0:
                self.follow_producer(header, memoryview(self.read_batch(entry)), now_ms)
        self.producers.map_end_offset = end_offset
        self.producers.on_high_watermark(self.high_watermark)

    # -- cuts ------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: int) -> None:
        """Drop everything from `offset` on, and the batch that holds it."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        if offset >= self.log_end_offset:
            entries = self.epochs.entries
            if entries and entries[-1].start_offset >= self.log_end_offset:
                self._end(FrameKind.TRUNCATED, self.log_end_offset, LAST_OFFSET)
                self.apply_truncation(self.log_end_offset)
        elif offset < self.log_start_offset:
            self.restart_at(offset, now_ms)
        else:
            self._truncate(offset, now_ms)

    def _truncate(self, offset: int, now_ms: int) -> None:
        index = self.queue.find(offset)
        before = self.queue.entry(index - 1).next_offset if index > self.queue.first else 0
        end_offset = Offset(max(before, self.log_start_offset))
        self.home.cut(self, end_offset)
        self._end(FrameKind.TRUNCATED, end_offset, LAST_OFFSET)
        self.apply_truncation(end_offset)
        self.rebuild_producers(now_ms)

    def apply_truncation(self, end_offset: int) -> None:
        """End the log here; the producers are the caller's part."""
        queue = self.queue
        index = queue.find(end_offset)
        self._forget_entries(index, queue.end)
        queue.truncate(index)
        self._settle_end(Offset(end_offset))

    def _settle_end(self, end_offset: Offset) -> None:
        self.generation += 1
        self.is_changed = True
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.durable_offset = min(self.durable_offset, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        if self.segment_base > end_offset:
            self.roll()
        self.snapshots = [item for item in self.snapshots if item.offset <= end_offset]
        self.aborted_txns = [item for item in self.aborted_txns if item.last_offset < end_offset]
        self.epochs.truncate_from_end(end_offset)
        self._latest_epoch = self.epochs.latest

    def restart_at(self, offset: Offset, now_ms: int) -> None:
        """Delete everything and continue, empty, at `offset`."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        if offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self.home.cut(self, min(offset, self.log_start_offset))
        self._end(FrameKind.RESTARTED, offset, LAST_OFFSET)
        self.apply_restart(offset)

    def apply_restart(self, offset: int) -> None:
        queue = self.queue
        self._forget_entries(queue.first, queue.end)
        queue.clear()
        self.generation += 1
        self.is_changed = True
        start = Offset(offset)
        self.log_start_offset = self.high_watermark = self.log_end_offset = start
        self.durable_offset = self.cleaned_offset = start
        self.roll()
        self.epochs.clear()
        self._latest_epoch = -1
        self.producers.clear()
        self.snapshots = []
        self.aborted_txns = []
        self.dirty_since_ms = None

    def delete_before(self, offset: Offset) -> None:
        """Hide the records below `offset`; files go once no live batch is in them."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            if self.failure is None:
                self._end(FrameKind.LOG_START, 0, offset - 1)
            self.apply_start(offset)

    def apply_start(self, offset: int) -> None:
        """Only a replay may pass the log's end: the records up to there are lost then."""
        queue = self.queue
        index = queue.find(offset)
        self._forget_entries(queue.first, index)
        queue.drop_before(index)
        self.is_changed = True
        self.log_start_offset = Offset(max(offset, self.log_start_offset))
        self.high_watermark = max(self.high_watermark, self.log_start_offset)
        self.log_end_offset = max(self.log_end_offset, self.log_start_offset)
        self.epochs.truncate_from_start(offset)
        if self.aborted_txns and self.aborted_txns[0].last_offset < offset:
            self.aborted_txns = [item for item in self.aborted_txns if item.last_offset >= offset]

    def _forget_entries(self, start: int, stop: int) -> None:
        for entry in self.queue.entries(start, stop):
            self._remove_live(entry.position, entry.size)

    def forget_all(self) -> None:
        """The partition is deleted: its batches are live no more."""
        self.live.clear()
        self.queue.release()

    def _end(self, kind: FrameKind, first: int, last: int) -> None:
        """Write the frame that ends these offsets, before anything changes in memory."""
        before = self.home.commit_log.end
        ending = FrameEnding(kind, self.number, first, last, before)
        position = self.write_frame(kind, ending.encode())
        self.home.note_ending(ending, position)
        if kind is not FrameKind.LOG_START:
            # A power cut must not bring back what the next batches contradict.
            try:
                self.home.commit_log.sync_now()
            except OSError as error:
                self.home.fail(error)
                raise LogFenced(self.tp, error) from error

    def write_frame(self, kind: FrameKind, payload: Buffer) -> int:
        """Write one frame of this partition now; returns its position."""
        try:
            position = self.home.stage(self, kind, payload)
            self.home.write()
        except OSError as error:
            self.home.fail(error)
            raise LogFenced(self.tp, error) from error
        return position

    def truncate_here(self, now_ms: int) -> None:
        """Frames after the log's end are lost: say so, so that the next replay ignores them too."""
        self._end(FrameKind.TRUNCATED, self.log_end_offset, LAST_OFFSET)
        self.apply_truncation(self.log_end_offset)
        self.rebuild_producers(now_ms)

    def move_start(self, offset: int) -> None:
        """The batches below are lost."""
        self._end(FrameKind.LOG_START, 0, offset - 1)
        self.apply_start(offset)

    def cut_at(self, offset: int) -> None:
        """The batches from the one with this offset on are lost, or some of them."""
        index = self.queue.find(offset)
        before = self.queue.entry(index - 1).next_offset if index > self.queue.first else 0
        self.apply_truncation(max(before, self.log_start_offset))

    def kill(self, ending: FrameEnding) -> None:
        """Drop the entries that an ending carried forward is about, wherever they are."""
        for base_offset in [
            entry.base_offset
            for entry in self.queue.entries(self.queue.first, self.queue.end)
            if ending.covers(entry.base_offset, entry.last_offset, entry.position)
        ]:
            index = self.queue.find(base_offset)
            self.replace_entries(index, index + 1, [])
        self.settle_entries()

    def settle_entries(self) -> None:
        """The log ends after its last entry."""
        last = self.queue.last()
        end_offset = self.log_start_offset if last is None else last.next_offset
        self.log_end_offset = Offset(max(end_offset, self.log_start_offset))
        self.is_changed = True

    def replace_entries(self, start: int, stop: int, entries: Sequence[QueueEntry]) -> None:
        """Put other batches in the place of those in [start, stop)."""
        self._forget_entries(start, stop)
        self.queue.replace(start, stop, b"".join(QueueEntry.encode(entry) for entry in entries))
        for entry in entries:
            self._add_live(self.home.commit_log.get_file(entry.position), entry.size)
        self.is_changed = True

    def replace_compacted(
        self, first: int, last: int, located: Sequence[tuple[int, BatchHeader]], position: int
    ) -> None:
        """The batches with offsets in [first, last] have become those of one frame, maybe none."""
        queue = self.queue
        start, stop = queue.find(first), queue.find(last + 1)
        times = {entry.base_offset: entry.time_ms for entry in queue.entries(start, stop)}
        entries = [
            QueueEntry(
                header.base_offset,
                header.last_offset_delta,
                position + at,
                header.size,
                times.get(header.base_offset, header.max_timestamp),
            )
            for at, header in located
        ]
        self.replace_entries(start, stop, entries)
        kept = {entry.last_offset for entry in entries}
        self.aborted_txns = [
            item
            for item in self.aborted_txns
            if not first <= item.last_offset <= last or item.last_offset in kept
        ]

    def move_entry(self, index: int, position: int) -> None:
        """The entry's batch has been written again at another position."""
        entry = self.queue.entry(index)
        self._remove_live(entry.position, entry.size)
        self._add_live(self.home.commit_log.get_file(position), entry.size)
        self.queue.move(index, position)
        self.is_changed = True

    def undo_append(self, end_offset: Offset, end_index: int) -> None:
        """A write has failed: nothing staged for this log was stored. It is fenced already."""
        self._forget_entries(end_index, self.queue.end)
        self.queue.truncate(end_index)
        self.log_end_offset = end_offset

    # -- single batches --------------------------------------------------------------------

    def header_of(self, entry: QueueEntry) -> BatchHeader:
        return read_header(self._pread(entry, HEADER_BYTES))

    def read_batch(self, entry: QueueEntry) -> bytes:
        return self._pread(entry, entry.size)

    def lease_file(self, file: CommitLogFile) -> tuple[int, Lease]:
        """A descriptor that stays open until the lease is released."""
        lease = self._handles.lease(file.handle)
        return self._handles.descriptor(file.handle), lease

    def lease_files(self, files: Sequence[CommitLogFile]) -> tuple[Lease, list[int]]:
        lease = self._handles.lease(*(file.handle for file in files))
        return lease, [self._handles.descriptor(file.handle) for file in files]

    def _pread(self, entry: QueueEntry, length: int) -> bytes:
        file = self.home.commit_log.find_file(entry.position)
        content = b""
        if file is not None:
            descriptor = self._handles.descriptor(file.handle)
            content = read_fully(self._disk, descriptor, length, entry.position - file.base)
        if len(content) < length:
            raise CorruptRecords(
                f"{self.tp}: the batch at offset {entry.base_offset} is not at position "
                f"{entry.position} of {self.home.commit_log.folder}"
            )
        return content

    # -- state -----------------------------------------------------------------------------

    def state(self, applied: int) -> StoredPartition:
        return StoredPartition(
            self.number,
            self.tp,
            self.topic_id,
            self.log_start_offset,
            self.high_watermark,
            self.cleaned_offset,
            applied,
            self.last_frame,
            self.state_frame,
            self.segment_base,
            self.segment_bytes,
            self.segment_first_ms,
            self.epochs.entries,
            self.snapshots,
            self.aborted_txns,
            tuple(self.live.items()),
        )

    def adopt(self, state: StoredPartition, queue: ConsumeQueue | None, now_ms: int) -> None:
        """Take over a state as it was encoded; with a queue, that queue too."""
        self.log_start_offset = Offset(state.log_start_offset)
        self.high_watermark = Offset(state.high_watermark)
        self.cleaned_offset = Offset(state.cleaned_offset)
        self.saved_high_watermark = state.high_watermark
        self.last_frame = state.last_frame
        self.state_frame = state.state_frame
        self.segment_base = Offset(state.segment_base)
        self.segment_bytes = state.segment_bytes
        self.segment_first_ms = TimestampMs(state.segment_first_ms)
        self.epochs = LeaderEpochCache(state.epochs)
        self._latest_epoch = self.epochs.latest
        self.snapshots = list(state.snapshots)
        self.aborted_txns = list(state.aborted)
        if queue is not None:
            self.queue = queue
            self._live = dict(state.live)
            self.settle_entries()
        self.producers.load([], 0, now_ms)
        if self.snapshots and self.snapshots[-1].content:
            offset, content = self.snapshots[-1]
            self.producers.load(decode(content), offset, now_ms)

    def retire(self, reason: OSError) -> None:
        """Stop serving the log: it takes nothing more."""
        self.failure = self.failure or reason
        self.is_retired = True
        self.generation += 1
        self.queue.release()
