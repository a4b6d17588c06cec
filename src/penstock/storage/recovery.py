"""Opens a log from its folder, after a clean shutdown or a crash. Damaged files never stop it.

Log files are the truth; everything else is rebuilt from them if it is missing or wrong. After a
crash every batch from the recovery point on is checked, and the log ends before the first one that
is torn, damaged or contradicted by its neighbours.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from penstock.io.disk import Disk, read_file
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import Offset
from penstock.protocol.batch import LOG_OVERHEAD, MAX_OFFSET, BatchHeader
from penstock.storage.errors import CorruptRecords, MalformedCheckpoint, MalformedTransactionIndex
from penstock.storage.leader_epoch_cache import (
    EPOCH_FILE,
    EpochEntry,
    LeaderEpochCache,
    decode_epochs,
)
from penstock.storage.log import SegmentedLog
from penstock.storage.producer_replay import apply_batch
from penstock.storage.segment import MAX_RELATIVE_OFFSET, Segment
from penstock.storage.segment_file import LOG_SUFFIX, SUFFIXES
from penstock.storage.segment_removal import remove_files
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.transaction_index import TRANSACTION_INDEX_SUFFIX

LEAST_JUMP = 2**30  # a leader's batch this far ahead may begin a segment of its own


class CheckpointedOffsets(NamedTuple):
    """The checkpoints of the log directory for one log."""

    clean: bool  # the last shutdown was clean: no batch needs checking
    recovery_point: Offset
    log_start_offset: Offset
    high_watermark: Offset
    cleaned_offset: Offset


def open_log(
    log: SegmentedLog,
    disk: Disk,
    names: set[str],
    remembered: CheckpointedOffsets,
    now_ms: int,
    logger: EventLogger,
    *,
    last_replaced: int = -1,
) -> None:
    """Fill a new SegmentedLog from the files in its folder, whose swaps are finished already.

    `last_replaced` is the base offset of the last segment that compaction has replaced, if known.
    """
    names = _without_strays(log.directory, names, logger)
    _remove_orphans(disk, log.directory, names, logger)
    bases = sorted(_base_of(name) for name in names if name.endswith(LOG_SUFFIX))
    if not bases:
        # The log's restart or creation was interrupted: no batch, no epoch, no producer.
        log.restart_at(remembered.log_start_offset, now_ms)
        if EPOCH_FILE in names:
            log.epochs.dirty = True
            log.write_epochs()
        return
    opening = _Opening(log, disk, names, bases, remembered, now_ms, logger, last_replaced)
    opening.run()


class _Restart(Exception):
    """The log was cut in a part that had been read already: open it again."""


class _Opening:
    """Tries to open one log, each time with less of it, until an attempt succeeds."""

    def __init__(
        self,
        log: SegmentedLog,
        disk: Disk,
        names: set[str],
        bases: list[int],
        remembered: CheckpointedOffsets,
        now_ms: int,
        logger: EventLogger,
        last_replaced: int,
    ) -> None:
        self._log = log
        self._disk = disk
        self._names = names
        self._bases = bases
        self._remembered = remembered
        self._now_ms = now_ms
        self._logger = logger
        self._last_replaced = last_replaced

    def run(self) -> None:
        log, remembered = self._log, self._remembered
        epochs = self._read_epochs()
        if remembered.clean and epochs is not None and self._try_clean(epochs):
            log.durable_offset = log.log_end_offset
        else:
            self._recover(epochs)
            log.durable_offset = min(remembered.recovery_point, log.log_end_offset)
            log.dirty_since_ms = self._now_ms
            log.dirty_from_bytes = log.appended_bytes
            log.names_changed = True
        self._settle()
        if EPOCH_FILE in self._names:
            # The next batches must not contradict epochs in it that the log has lost. If there is
            # no file yet, the next flush writes it: a start need not wait for two syncs per log.
            log.write_epochs()

    def _settle(self) -> None:
        log, remembered = self._log, self._remembered
        start = max(remembered.log_start_offset, Offset(log.segments[0].base_offset))
        if start > log.log_end_offset:
            # The log start offset survived the crash, but no record above it did.
            self._logger.warning(
                "log_restarted",
                f"{log.directory} starts at {start} but ends at {log.log_end_offset}; "
                f"continuing empty",
            )
            log.restart_at(start, self._now_ms)
            return
        log.log_start_offset = start
        log.high_watermark = min(max(remembered.high_watermark, start), log.log_end_offset)
        log.cleaned_offset = min(remembered.cleaned_offset, log.log_end_offset)
        log.durable_offset = max(log.durable_offset, start)
        log.epochs.truncate_from_start(start)
        log.producers.on_high_watermark(log.high_watermark)

    def _read_epochs(self) -> list[EpochEntry] | None:
        """None if the checkpoint is missing, empty or damaged; then the batches are read."""
        path = f"{self._log.directory}/{EPOCH_FILE}"
        content = read_file(self._disk, path)
        if not content:
            return None
        try:
            return decode_epochs(content, path)
        except MalformedCheckpoint as error:
            self._logger.warning("epochs_rebuilt", f"{error}; rebuilding it from the log")
            return None

    # -- after a clean shutdown ------------------------------------------------------------

    def _try_clean(self, epochs: list[EpochEntry]) -> bool:
        """Open without reading the log, except for the headers at its end."""
        log = self._log
        try:
            for base in self._bases:
                segment = self._segment(base)
                if base == self._bases[-1]:
                    segment.resume(segment.size)
                else:
                    self._check_sealed(segment)
                self._check_transaction_index(segment)
                log.segments.add(segment)
            last = log.segments.active.find_last_batch()
            log.adopt_epochs(LeaderEpochCache(epochs))
            log.resume_end(Offset(self._bases[-1] if last is None else last.header.next_offset))
            log.replay_producers(self._now_ms)
        except (CorruptRecords, MalformedTransactionIndex) as error:
            self._logger.warning("log_damaged", f"{error}; recovering the whole log")
            self._forget()
            return False
        return True

    def _check_sealed(self, segment: Segment) -> None:
        """Rebuild an implausible index; its entries are checked when they are used."""
        for index in (segment.offset_index, segment.time_index):
            if _name_of(index.path) not in self._names or not index.is_plausible():
                self._logger.warning(
                    "index_rebuilt",
                    f"{index.path} is missing or damaged; rebuilding it from its segment",
                )
                segment.rebuild_indexes()
                segment.seal()
                self._log.unsynced_paths.update(segment.index_paths)
                return

    def _check_transaction_index(self, segment: Segment) -> None:
        if _name_of(segment.transaction_index.path) in self._names:
            _ = segment.transaction_index.entries  # raises if it does not decode

    def _forget(self) -> None:
        while len(self._log.segments):
            self._log.segments.pop_last().release()

    def _segment(self, base: int) -> Segment:
        segment = self._log.segment_at(base, self._now_ms)
        segment.size = self._disk.size_of(segment.file.path)
        return segment

    # -- after a crash ---------------------------------------------------------------------

    def _recover(self, epochs: list[EpochEntry] | None) -> None:
        while True:
            try:
                self._recover_once(epochs)
            except _Restart:
                self._forget()
            else:
                return

    def _recover_once(self, epochs: list[EpochEntry] | None) -> None:
        log = self._log
        point = self._remembered.recovery_point if epochs is not None else 0
        # Recheck the segment that ends at the recovery point too: its indexes are written when it
        # is sealed, and may not have reached the disk with it.
        first = max(0, sum(1 for base in self._bases if base < point) - 1)
        first = self._load_trusted(first)
        log.adopt_epochs(LeaderEpochCache(epochs or ()))
        if epochs is None:
            log.epochs.dirty = True
        check = _Check(
            log,
            self._disk,
            epochs or [],
            self._cut,
            now_ms=self._now_ms,
            whole_below=self._find_whole_end(),
        )
        check.run([self._segment(base) for base in self._bases[first:]])

    def _find_whole_end(self) -> int:
        """Below this offset a hole is no loss: compaction may have removed the last batches of a
        segment there. Ours first moves the recovery point beyond it; of an interrupted pass of
        Kafka's the leftovers tell."""
        remembered = self._remembered
        end = max(remembered.recovery_point, remembered.cleaned_offset)
        if not self._log.config.compact or self._last_replaced < 0:
            return end
        following = (base for base in self._bases if base > self._last_replaced)
        return max(end, min(following, default=0))

    def _load_trusted(self, first: int) -> int:
        """Load the segments below the recovery point, which are on disk; 0 if one is damaged."""
        log = self._log
        try:
            for base in self._bases[:first]:
                segment = self._segment(base)
                self._check_sealed(segment)
                self._check_transaction_index(segment)
                log.segments.add(segment)
            self._replay_up_to(Offset(self._bases[first]))
        except (CorruptRecords, MalformedTransactionIndex) as error:
            self._logger.warning("log_damaged", f"{error}; checking the whole log")
            self._forget()
            self._replay_up_to(Offset(self._bases[0]))
            return 0
        return first

    def _replay_up_to(self, trusted_end: Offset) -> None:
        self._log.log_end_offset = trusted_end
        self._log.snapshots.drop_above(trusted_end)
        self._log.replay_producers(self._now_ms)

    def _cut(self, segment: Segment, position: int, problem: str) -> None:
        """Truncate the log in this segment; later segments go first, so that no hole appears."""
        later = [base for base in self._bases if base > segment.base_offset]
        lost = self._disk.size_of(segment.file.path) - position
        self._logger.warning(
            "log_cut",
            f"{segment.file.path}: {problem} at position {position}; cutting {lost} bytes "
            f"and {len(later)} later segments",
            file=segment.file.path,
            position=position,
            bytes=lost,
            segments=len(later),
        )
        start = self._remembered.log_start_offset
        self._log.prepare_cut(Offset(max(segment.base_offset, start)))
        for base in reversed(later):
            remove_files(self._disk, self._log.segment_at(base, self._now_ms))
            self._bases.remove(base)
        if later:
            # Another crash must not bring them back after what is appended now.
            self._disk.sync_directory(self._log.directory)
        segment.truncate_file(position)


Cut = Callable[[Segment, int, str], None]


class _Check:
    """Walks segments batch by batch and rebuilds indexes, epochs and producer state."""

    def __init__(
        self,
        log: SegmentedLog,
        disk: Disk,
        checkpointed: list[EpochEntry],
        cut: Cut,
        *,
        now_ms: int,
        whole_below: int,
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._disk = disk
        self._cut = cut
        self._whole_below = whole_below
        self._checkpointed = LeaderEpochCache(checkpointed)
        # Below this offset the checkpoint has the epoch of every batch.
        self._settled_below: int = checkpointed[-1].start_offset if checkpointed else 0
        self._expected: int = log.log_end_offset  # the next batch starts here, or later
        # The last batch, if it jumped in offset or epoch. Both are outside its CRC, so the next
        # batch may prove that it is damaged.
        self._suspect: tuple[Segment, int] | None = None
        self._index: tuple[Segment, dict[int, int]] | None = None  # of the segment checked last

    def run(self, segments: list[Segment]) -> None:
        for number, segment in enumerate(segments):
            if segment.base_offset < self._expected:
                before = segments[number - 1]
                self._blame(before, before.size, f"{segment.file.path} overlaps this segment's end")
            if self._is_hole(segment):
                before = segments[number - 1]
                self._cut(before, before.size, f"batches up to {segment.base_offset} are missing")
                break
            is_whole = self._take_in(segment)
            self._log.segments.add(segment)
            self._expected = max(self._expected, segment.base_offset)
            if not is_whole:
                break
        self._finish()

    def _is_hole(self, segment: Segment) -> bool:
        """Whether batches before this segment are lost: a power cut may remove the end of one file
        and leave the next. A new segment starts where the log ends, except for jumps that no
        relative offset can express."""
        missing = segment.base_offset - self._expected
        return 0 < missing < LEAST_JUMP and segment.base_offset > self._whole_below

    def _finish(self) -> None:
        log = self._log
        for segment in log.segments:
            if segment.is_active:
                segment.rewrite_indexes()
                segment.transaction_index.store()
                if segment is not log.segments.active:
                    segment.seal()
                log.unsynced_paths.update(segment.index_paths)
        log.settle_end(Offset(self._expected))
        log.producers.map_end_offset = log.log_end_offset

    def _take_in(self, segment: Segment) -> bool:
        """Note every batch of one file; False if a torn or damaged one was cut off."""
        log, settled, latest = self._log, self._settled_below, self._log.latest_epoch
        end = segment.base_offset + MAX_RELATIVE_OFFSET
        scan = segment.scan(check_crc=True)
        segment.start_indexes()
        for position, header, cursor in scan.walk(partial(self._take_plain_run, segment)):
            size, last = header[1] + LOG_OVERHEAD, header[0] + header[6]
            # An ordinary batch continues offset and epoch; others are checked closely.
            if (
                header[0] != self._expected
                or header[2] != latest
                or last > end
                or header[0] < settled
            ):
                self._check_closely(segment, position, BatchHeader._make(header))
                latest = log.latest_epoch
            else:
                self._suspect = None
            segment.note_batch(position, size, last, header[8])
            self._expected = last + 1
            if header[9] >= 0:
                content = scan.content(cursor, size)
                self._apply_producer(segment, BatchHeader._make(header), content)
        segment.size = scan.position
        if scan.problem is not None:
            self._cut(segment, scan.position, scan.problem)
        return scan.problem is None

    def _take_plain_run(
        self, segment: Segment, buffer: memoryview, cursor: int, filled: int, start: int
    ) -> int:
        """Consume ordinary batches without a producer, which only their segment has to note."""
        if self._expected < self._settled_below:
            return cursor
        following, self._expected = segment.note_plain_run(
            buffer, cursor, filled, start, offset=self._expected, epoch=self._log.latest_epoch
        )
        if following > cursor:
            self._suspect = None
        return following

    def _apply_producer(self, segment: Segment, header: BatchHeader, content: memoryview) -> None:
        aborted = apply_batch(self._log.producers, header, content, self._now_ms)
        if aborted is not None:
            segment.transaction_index.entries.append(aborted)

    def _check_closely(self, segment: Segment, position: int, header: BatchHeader) -> None:
        problem = self._find_contradiction(segment, header)
        if problem is not None:
            self._blame(segment, position, problem)
        self._suspect = None
        if header.base_offset > self._expected:
            indexed = self._indexed_offsets(segment).get(position)
            if indexed is not None and indexed != header.last_offset:
                self._blame(segment, position, f"the index has offset {indexed} here")
            self._suspect = segment, position
        if header.leader_epoch > self._log.latest_epoch:
            self._suspect = segment, position
            self._log.follow_epoch(header)

    def _indexed_offsets(self, segment: Segment) -> dict[int, int]:
        """Read once per segment, because a compacted one jumps at every other batch."""
        if self._index is None or self._index[0] is not segment:
            self._index = segment, _read_index(self._disk, segment)
        return self._index[1]

    def _find_contradiction(self, segment: Segment, header: BatchHeader) -> str | None:
        """Why a batch with a valid CRC cannot be here."""
        offset, epoch = header.base_offset, header.leader_epoch
        if offset < self._expected:
            return f"offset {offset} after {self._expected - 1}"
        if header.last_offset > segment.base_offset + MAX_RELATIVE_OFFSET:
            return f"offset {header.last_offset} is too far from the segment's first"
        if offset < self._settled_below:
            written = self._checkpointed.find_epoch_at(offset)
            if written is not None and written != epoch:
                return f"epoch {epoch} where the checkpoint says {written}, offset {offset},"
        elif epoch < self._log.latest_epoch:
            return f"epoch {epoch} after epoch {self._log.latest_epoch}"
        return None

    def _blame(self, segment: Segment, position: int, problem: str) -> NoReturn:
        """Cut before the damaged one of two contradicting batches: the one that jumped."""
        culprit, end = self._suspect if self._suspect is not None else (segment, position)
        self._cut(culprit, end, problem)
        raise _Restart


def _read_index(disk: Disk, segment: Segment) -> dict[int, int]:
    """Position to last offset, as the crash left the index file.

    A crash may leave zeros at the file's end, even from the middle of an entry on, so entries that
    do not increase, or whose last byte is zero, are ignored.
    """
    content = read_file(disk, segment.offset_index.path) or b""
    whole = len(content) - len(content) % OFFSET_INDEX.entry.size
    offsets: dict[int, int] = {}
    previous = -1
    for relative, position in OFFSET_INDEX.entry.iter_unpack(content[:whole]):
        if relative <= previous:
            break
        if position & 0xFF:
            offsets[position] = segment.base_offset + relative
        previous = relative
    return offsets


def _remove_orphans(disk: Disk, directory: str, names: set[str], logger: EventLogger) -> None:
    """Remove indexes without a log file, which an interrupted deletion leaves."""
    others = (OFFSET_INDEX.suffix, TIME_INDEX.suffix, TRANSACTION_INDEX_SUFFIX)
    for name in sorted(names):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in others and stem + LOG_SUFFIX not in names:
            logger.warning("orphan_removed", f"{directory}/{name} has no log file; removing it")
            disk.unlink(f"{directory}/{name}")
            names.discard(name)


def _without_strays(directory: str, names: set[str], logger: EventLogger) -> set[str]:
    """Ignore files that only look like a segment's: they are neither read nor removed."""
    strays = {name for name in names if name.endswith(SUFFIXES) and not is_segment_file(name)}
    for name in sorted(strays):
        logger.warning(
            "stray_file_ignored",
            f"{directory}/{name} is not a segment's file, whose name is an offset of 20 digits; "
            f"ignoring it",
        )
    return names - strays


def is_segment_file(name: str) -> bool:
    stem, dot, suffix = name.partition(".")
    is_offset = len(stem) == 20 and stem.isascii() and stem.isdigit() and int(stem) <= MAX_OFFSET
    return is_offset and dot + suffix in SUFFIXES


def _base_of(name: str) -> int:
    return int(name.partition(".")[0])


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
