"""Opens the partitions of a log directory: a replay of its commit log from the last checkpoint.

A bad frame below the recovery point costs its partition only, which ends before it; one after it is
the torn end of the log, which is cut there. Without a usable checkpoint everything is replayed.
"""

from collections.abc import Callable

from penstock.config.log_config import LogConfig
from penstock.io.disk import APPEND, Disk, read_fully
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import BatchHeader, check_header, iter_headers
from penstock.protocol.checksum import crc32c
from penstock.storage.commit_log.commit_log import CommitLogFile
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.consume_queue import (
    ENTRY_BYTES,
    ConsumeQueue,
    QueueEntry,
    QueueFile,
    find_generation,
)
from penstock.storage.commit_log.frame_scan import FrameScan, ScannedFrame
from penstock.storage.commit_log.frames import (
    ALIGNMENT,
    ENDED,
    EPOCH_START,
    FRAME_BYTES,
    NO_POSITION,
    PARTITION_OFFSET,
    FrameEnding,
    FrameKind,
)
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.commit_log.partition_state import (
    MalformedState,
    StoredPartition,
    decode_state,
)
from penstock.storage.commit_log.state_checkpoint import (
    QueueRecord,
    StateCheckpoint,
    make_queue,
    read_checkpoint,
)
from penstock.storage.engine import NO_TOPIC_ID
from penstock.storage.errors import MalformedCheckpoint
from penstock.storage.handles import Handles

_UNNAMED = "__unnamed"  # of a partition whose state has not been read yet


class CommitLogReplay:
    """Fills a directory's `logs`. Run it once."""

    def __init__(
        self,
        directory: CommitLogDirectory,
        *,
        disk: Disk,
        handles: Handles,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        logger: EventLogger,
    ) -> None:
        self.missing: set[TopicPartition] = set()  # all of their batches are gone
        self.short: dict[TopicPartition, Offset] = {}  # end below that high watermark
        self._directory = directory
        self._commit_log = directory.commit_log
        self._disk = disk
        self._handles = handles
        self._config_of = config_of
        self._now_ms = now_ms
        self._logger = logger
        self._logs: dict[int, CommitLogPartition] = {}
        self._unnamed: set[int] = set()  # numbers whose STATE frame has not come yet
        self._applied: dict[int, int] = {}
        self._broken: set[int] = set()  # a frame is lost: later batches are ignored
        self._stale: set[int] = set()  # producers must be rebuilt
        self._inserted: set[int] = set()  # times must be computed again
        self._marks: dict[int, int] = {}  # high watermarks as they were in frames
        self._is_full = False
        self._is_damaged = False

    def run(self) -> None:
        commit_log = self._commit_log
        commit_log.load()
        # A queue is never written to a file that is there.
        self._directory.next_generation = self._newest_generation()
        checkpoint = self._read_checkpoint()
        start, recovery_point = 0, 0
        if checkpoint is not None and self._check_queues(checkpoint):
            start, recovery_point = checkpoint.replay_from, checkpoint.durable_end
            self._load(checkpoint)
        elif commit_log.files:
            self._is_full = True
            start, recovery_point = commit_log.files[0].base, commit_log.files[-1].base
            if checkpoint is not None:
                recovery_point = max(recovery_point, checkpoint.durable_end)
                self._directory.next_number = checkpoint.next_number
        self._replay(start, recovery_point)
        end = max(start, recovery_point, commit_log.written_end)
        if not commit_log.files or commit_log.written_end < end:
            commit_log.start_file(end + -end % ALIGNMENT)
        self._finish(recovery_point)

    def _read_checkpoint(self) -> StateCheckpoint | None:
        try:
            return read_checkpoint(self._disk, self._directory.path)
        except MalformedCheckpoint as error:
            self._logger.warning("checkpoint_damaged", f"{error}; replaying the whole commit log")
            return None

    # -- consume queues --------------------------------------------------------------------

    def _check_queues(self, checkpoint: StateCheckpoint) -> bool:
        """Whether all files of queues are whole. The commit log has all that is in them.

        Entries have no CRC of their own, and a reader takes them for true.
        """
        for state, record in checkpoint.partitions:
            file, _ = record.open(self._directory.queue_folder)
            problem = "" if file is None else self._find_queue_problem(file)
            if problem:
                self._logger.warning(
                    "consume_queue_damaged",
                    f"the consume queue of {state.tp} {problem}; replaying the whole commit log",
                )
                return False
        return True

    def _newest_generation(self) -> int:
        entries = self._disk.list(self._directory.queue_folder)
        return max((find_generation(entry.name) for entry in entries), default=0)

    def _find_queue_problem(self, file: QueueFile) -> str:
        """What is wrong with it, if anything; what was written after the checkpoint is cut."""
        try:
            descriptor = self._disk.open(file.path, APPEND)
        except FileNotFoundError:
            return "is gone"
        try:
            wanted = file.entry_count * ENTRY_BYTES
            if self._disk.size(descriptor) > wanted:
                self._disk.truncate(descriptor, wanted)
            content = read_fully(self._disk, descriptor, wanted, 0)
        finally:
            self._disk.close(descriptor)
        if len(content) < wanted:
            return f"has {len(content)} bytes, {wanted} expected"
        return "" if crc32c(content) == file.crc else "does not match its CRC"

    # -- the checkpoint --------------------------------------------------------------------

    def _load(self, checkpoint: StateCheckpoint) -> None:
        directory = self._directory
        directory.checkpointed_end = checkpoint.replay_from
        directory.next_number = checkpoint.next_number
        for position, ending in checkpoint.endings:
            directory.endings.setdefault(ending.number, []).append((position, ending))
        for state, record in checkpoint.partitions:
            self._adopt(state, record)

    def _adopt(self, state: StoredPartition, record: QueueRecord) -> None:
        log = self._make(state.number, state.tp)
        log.topic_id = state.topic_id
        file, first = record.open(self._directory.queue_folder)
        log.adopt(state, make_queue(ConsumeQueue(self._handles, file, first), record), self._now_ms)
        self._marks[state.number] = state.high_watermark
        self._applied[state.number] = state.applied
        for base, _ in state.live:
            held = self._commit_log.find_file(base)
            if held is None or held.base != base:
                self._is_damaged = True

    def _make(self, number: int, tp: TopicPartition) -> CommitLogPartition:
        log = CommitLogPartition(
            disk=self._disk,
            handles=self._handles,
            home=self._directory,
            number=number,
            tp=tp,
            topic_id=NO_TOPIC_ID,
            config=LogConfig() if tp.topic == _UNNAMED else self._config_of(tp.topic),
            now_ms=self._now_ms,
        )
        self._logs[number] = log
        self._directory.next_number = max(self._directory.next_number, number + 1)
        return log

    # -- frames ----------------------------------------------------------------------------

    def _replay(self, start: int, recovery_point: int) -> None:
        expected = start
        for file in [file for file in self._commit_log.files if file.end > start]:
            if file.base > expected and not self._is_full:
                if expected >= recovery_point:
                    self._cut(file, file.base, f"bytes from {expected} on are missing")
                    return
                self._report(f"bytes {expected} to {file.base} of the commit log are missing")
            if not self._replay_file(file, max(start, file.base), recovery_point):
                return
            expected = file.end

    def _replay_file(self, file: CommitLogFile, start: int, recovery_point: int) -> bool:
        """False if the log was cut in this file."""
        descriptor = self._handles.descriptor(file.handle)
        scan = FrameScan(self._disk, descriptor, base=file.base, start=start, end=file.end)
        while True:
            for frame in scan:
                self._apply(frame)
            if not scan.problem:
                return True
            position, problem, number = scan.position, scan.problem, scan.number
            if position >= recovery_point:
                self._cut(file, position, problem)
                return False
            self._report(f"{file.handle.path}, position {position - file.base}: {problem}")
            if number in self._logs:
                self._broken.add(number)
            if not scan.resume():
                return True

    def _report(self, problem: str) -> None:
        self._is_damaged = True
        self._logger.warning(
            "commit_log_damaged", f"{problem}; the partitions with frames there end before them"
        )

    def _cut(self, file: CommitLogFile, position: int, problem: str) -> None:
        """End the commit log here; later files go first, so that no hole appears."""
        commit_log = self._commit_log
        later = [other for other in commit_log.files if other.base >= position]
        lost = sum(other.size for other in later) + max(0, file.end - position)
        self._logger.warning(
            "commit_log_cut",
            f"{file.handle.path}: {problem} at position {position}; cutting {lost} bytes",
            file=file.handle.path,
            position=position,
            bytes=lost,
        )
        for other in reversed(later):
            commit_log.drop(other)
            self._disk.unlink(other.handle.path)
        if later:
            self._disk.sync_directory(commit_log.folder)
        if file not in later:
            commit_log.cut(file, position - file.base)

    def _apply(self, frame: ScannedFrame) -> None:
        kind = FrameKind(frame.kind)
        if kind is FrameKind.HIGH_WATERMARKS:
            self._note_marks(frame)
            return
        if frame.position < self._applied.get(frame.number, 0):
            return
        log = self._logs.get(frame.number)
        if log is None:
            if frame.number < self._directory.next_number and not self._is_full:
                is_new = kind is FrameKind.STATE and frame.previous == NO_POSITION
                if not is_new:
                    self._note_deleted(frame)
                    return  # of a partition that was deleted before the checkpoint
            log = self._make(frame.number, TopicPartition(_UNNAMED, frame.number))
            self._unnamed.add(frame.number)
            log.last_frame = frame.previous
        if frame.previous != NO_POSITION or kind is FrameKind.STATE:
            self._check_chain(log, frame)
            log.last_frame = frame.position
        self._apply_to(log, kind, frame)

    def _note_deleted(self, frame: ScannedFrame) -> None:
        if frame.kind == FrameKind.DELETED:
            ending = FrameEnding(FrameKind.DELETED, frame.number, *ENDED.unpack(frame.payload))
            self._directory.note_ending(ending, frame.position)

    def _check_chain(self, log: CommitLogPartition, frame: ScannedFrame) -> None:
        if frame.previous == log.last_frame:
            return
        if self._is_full and self._commit_log.find_file(frame.previous) is None:
            return  # its file is gone because nothing in it was live
        self._broken.add(log.number)

    def _apply_to(self, log: CommitLogPartition, kind: FrameKind, frame: ScannedFrame) -> None:
        is_broken = log.number in self._broken
        if kind in (FrameKind.BATCHES, FrameKind.MOVED):
            if kind is FrameKind.MOVED:
                self._move(log, frame)
            elif not is_broken:
                self._append(log, frame)
        elif kind is FrameKind.STATE:
            self._take_state(log, frame)
        elif kind is FrameKind.EPOCH:
            if not is_broken:
                log.replay_epoch(*EPOCH_START.unpack(frame.payload))
        else:
            self._end(log, kind, frame)

    def _append(self, log: CommitLogPartition, frame: ScannedFrame) -> None:
        located = _locate(frame.payload)
        first = located[0][1].base_offset
        if first < log.log_end_offset:
            # Only a replay of everything comes here: the truncation's frame is gone.
            log.apply_truncation(max(first, log.log_start_offset))
            self._stale.add(log.number)
        log.take_in(located, frame.payload, frame.position + FRAME_BYTES, self._now_ms)

    def _move(self, log: CommitLogPartition, frame: ScannedFrame) -> None:
        """Update live entries; a replay of everything may have to add them."""
        for at, header in _locate(frame.payload):
            position = frame.position + FRAME_BYTES + at
            index = log.queue.find(header.base_offset)
            is_there = (
                index < log.queue.end and log.queue.entry(index).base_offset == header.base_offset
            )
            if is_there:
                if log.queue.entry(index).position < position:
                    log.move_entry(index, position)
            elif self._is_full:
                entry = QueueEntry(
                    header.base_offset,
                    header.last_offset_delta,
                    position,
                    header.size,
                    header.max_timestamp,
                )
                log.replace_entries(index, index, [entry])
                log.settle_entries()
                self._inserted.add(log.number)
                self._stale.add(log.number)

    def _take_state(self, log: CommitLogPartition, frame: ScannedFrame) -> None:
        log.state_frame = frame.position
        if log.number not in self._unnamed:
            return  # carried forward: everything in it is there
        try:
            state = decode_state(frame.payload)
        except MalformedState as error:
            self._report(f"the state of a partition at {frame.position}: {error}")
            return
        self._unnamed.discard(log.number)
        log.tp, log.topic_id = state.tp, state.topic_id
        log.producers.rename(str(state.tp))
        log.reconfigure(self._config_of(state.tp.topic))
        log.adopt(state, None, self._now_ms)
        log.state_frame = log.last_frame = frame.position
        log.apply_start(state.log_start_offset)
        log.settle_entries()
        self._marks[log.number] = state.high_watermark

    def _end(self, log: CommitLogPartition, kind: FrameKind, frame: ScannedFrame) -> None:
        first, last, before = ENDED.unpack_from(frame.payload)
        ending = FrameEnding(kind, log.number, first, last, before)
        self._directory.note_ending(ending, frame.position)
        if kind is FrameKind.DELETED:
            self._drop(log)
        elif before < frame.position:
            log.kill(ending)
        elif kind is FrameKind.RESTARTED:
            log.apply_restart(first)
            self._broken.discard(log.number)
            self._stale.discard(log.number)
            self._marks[log.number] = first
        elif kind is FrameKind.LOG_START:
            log.apply_start(last + 1)
        elif kind is FrameKind.TRUNCATED:
            self._truncate(log, first)
        elif log.number not in self._broken:
            located = _locate(frame.payload[ENDED.size :])
            position = frame.position + FRAME_BYTES + ENDED.size
            log.replace_compacted(first, last, located, position)

    def _truncate(self, log: CommitLogPartition, end_offset: int) -> None:
        if end_offset <= log.log_end_offset:
            log.apply_truncation(max(end_offset, log.log_start_offset))
            self._broken.discard(log.number)
            self._stale.add(log.number)
        self._marks[log.number] = min(self._marks.get(log.number, 0), end_offset)

    def _drop(self, log: CommitLogPartition) -> None:
        log.forget_all()
        for numbers in (self._unnamed, self._broken, self._stale, self._inserted):
            numbers.discard(log.number)
        self._marks.pop(log.number, None)
        del self._logs[log.number]

    def _note_marks(self, frame: ScannedFrame) -> None:
        for number, offset in PARTITION_OFFSET.iter_unpack(frame.payload):
            log = self._logs.get(number)
            if log is not None and frame.position >= self._applied.get(number, 0):
                log.high_watermark = Offset(min(offset, log.log_end_offset))
                log.saved_high_watermark = offset
                self._marks[number] = offset

    # -- the end ---------------------------------------------------------------------------

    def _finish(self, recovery_point: int) -> None:
        for number in self._unnamed:
            self._logs.pop(number).forget_all()
        for log in list(self._logs.values()):
            self._settle(log)
        self._sync(recovery_point)
        directory = self._directory
        directory.logs = {log.tp: log for log in self._logs.values()}
        for log in directory.logs.values():
            log.durable_offset = log.log_end_offset

    def _settle(self, log: CommitLogPartition) -> None:
        if log.number in self._inserted:
            _recompute_times(log)
        if self._is_damaged and not self._drop_lost(log):
            return
        if log.number in self._broken:
            self._logger.warning(
                "partition_cut",
                f"frames of {log.tp} are lost; it ends at {log.log_end_offset}",
                partition=str(log.tp),
            )
            log.truncate_here(self._now_ms)
        elif log.number in self._stale:
            log.rebuild_producers(self._now_ms)
        log.high_watermark = Offset(
            min(max(log.high_watermark, log.log_start_offset), log.log_end_offset)
        )
        log.cleaned_offset = min(log.cleaned_offset, log.log_end_offset)
        log.producers.map_end_offset = log.log_end_offset
        log.producers.on_high_watermark(log.high_watermark)
        mark = self._marks.get(log.number, 0)
        if mark > log.log_end_offset:
            self.short[log.tp] = Offset(mark)

    def _drop_lost(self, log: CommitLogPartition) -> bool:
        """Entries whose bytes are gone; False if that is all of them, and so the log."""
        queue = log.queue
        lost = [
            index for index in range(queue.first, queue.end) if self._is_lost(queue.entry(index))
        ]
        if not lost:
            return True
        if len(lost) == len(queue):
            self._logger.warning("partition_lost", f"all batches of {log.tp} are gone")
            self.missing.add(log.tp)
            self._directory.delete(log)
            self._drop(log)
            return False
        leading = 0
        while leading < len(lost) and lost[leading] == queue.first + leading:
            leading += 1
        if leading:
            log.move_start(queue.entry(queue.first + leading).base_offset)
        if leading < len(lost):
            log.cut_at(queue.entry(lost[leading]).base_offset)
            self._broken.add(log.number)
        return True

    def _is_lost(self, entry: QueueEntry) -> bool:
        file = self._commit_log.find_file(entry.position)
        return file is None or entry.position + entry.size > file.end

    def _sync(self, recovery_point: int) -> None:
        """What a kill has left in memory only is served from now on."""
        commit_log = self._commit_log
        commit_log.durable_end = recovery_point - 1
        if self._directory.was_aborted:
            commit_log.files_made += 1  # after a kill, names may be in memory only
        if self._directory.was_aborted or commit_log.files_made:
            commit_log.sync_now()
        commit_log.durable_end = commit_log.written_end


def _locate(payload: memoryview) -> list[tuple[int, BatchHeader]]:
    located = list(iter_headers(payload))
    for position, header in located:
        check_header(header, len(payload) - position)
    return located


def _recompute_times(log: CommitLogPartition) -> None:
    """Times never decrease from entry to entry."""
    queue, newest = log.queue, -1
    entries: list[QueueEntry] = []
    for entry in queue.entries(queue.first, queue.end):
        newest = max(newest, log.header_of(entry).max_timestamp)
        entries.append(entry._replace(time_ms=newest))
    queue.replace(queue.first, queue.end, b"".join(map(QueueEntry.encode, entries)))
