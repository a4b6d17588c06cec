"""Checks the files of a commit log and reports every inconsistency; walks their frames for a dump.

Reads only, takes no lock and needs no broker. What a crash may leave at the end of the last file is
a note, because the next start cuts it.
"""

from collections.abc import Callable, Iterator

from penstock.io.disk import READ, Disk, read_file
from penstock.protocol.batch import BatchHeader, CorruptBatch, is_crc_valid, iter_headers
from penstock.protocol.checksum import crc32c
from penstock.storage.commit_log.commit_log import COMMIT_LOG_FOLDER, find_file_base
from penstock.storage.commit_log.consume_queue import ENTRY_BYTES, ConsumeQueue, QueueEntry
from penstock.storage.commit_log.frame_scan import FrameScan, ScannedFrame
from penstock.storage.commit_log.frames import ENDED, FRAME_BYTES, WITH_BATCHES, FrameKind
from penstock.storage.commit_log.partition_state import StoredPartition
from penstock.storage.commit_log.state_checkpoint import (
    QUEUE_FOLDER,
    STATE_CHECKPOINT_FILE,
    QueueRecord,
    StateCheckpoint,
    make_queue,
    read_checkpoint,
)
from penstock.storage.errors import MalformedCheckpoint
from penstock.storage.findings import LogFindings
from penstock.storage.handles import Handles

FrameSeen = Callable[[ScannedFrame], None]


def has_commit_log(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{COMMIT_LOG_FOLDER}")


def list_commit_log(disk: Disk, directory: str) -> list[tuple[int, str]]:
    """Base and path of every file, in order."""
    folder = f"{directory}/{COMMIT_LOG_FOLDER}"
    bases = (find_file_base(entry.name) for entry in disk.list(folder))
    return [(base, f"{folder}/{base:020d}") for base in sorted(b for b in bases if b is not None)]


def batches_of(frame: ScannedFrame) -> Iterator[tuple[int, BatchHeader]]:
    """Position in the payload and header of each batch in a frame. CorruptBatch where one is not
    whole."""
    if frame.kind not in WITH_BATCHES:
        return
    start = ENDED.size if frame.kind == FrameKind.COMPACTED else 0
    for at, header in iter_headers(frame.payload[start:]):
        yield start + at, header


class CommitLogCheck:
    """One check of one directory; `findings` has the result."""

    def __init__(
        self, disk: Disk, directory: str, findings: LogFindings, progress: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._findings = findings
        self._progress = progress
        self._batches: dict[int, tuple[int, int]] = {}  # position -> base offset and size
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> None:
        # Before the frames that it tells of, so that a running broker causes no contradiction.
        checkpoint = self._read_checkpoint()
        files = list_commit_log(self._disk, self._directory)
        for base, path in files:
            self._check_file(base, path, is_last=base == files[-1][0], checkpoint=checkpoint)
        for state, record in () if checkpoint is None else checkpoint.partitions:
            self._check_queue(state, record, checkpoint)

    def _read_checkpoint(self) -> StateCheckpoint | None:
        path = f"{self._directory}/{STATE_CHECKPOINT_FILE}"
        try:
            checkpoint = read_checkpoint(self._disk, self._directory)
        except MalformedCheckpoint as error:
            self._findings.problem("commit-log-checkpoint", path, error.problem)
            return None
        if checkpoint is None:
            self._findings.problem("commit-log-checkpoint", path, "does not exist")
        else:
            self._findings.files += 1
        return checkpoint

    def _check_file(
        self, base: int, path: str, *, is_last: bool, checkpoint: StateCheckpoint | None
    ) -> None:
        size = self._disk.size_of(path)
        self._findings.files += 1
        self._findings.size_bytes += size
        durable_end = base + size if checkpoint is None else checkpoint.durable_end
        for frame, scan in scan_frames(self._disk, base, path):
            if frame is None:
                position, problem = scan.position, scan.problem
                if is_last and position >= durable_end:
                    message = f"{problem}; the next start cuts the log here"
                    self._findings.note("torn", path, message, position=position - base)
                    return
                self._findings.problem("frame", path, problem, position=position - base)
                continue
            self._progress(FRAME_BYTES + len(frame.payload))
            self._check_frame(path, base, frame)

    def _check_frame(self, path: str, base: int, frame: ScannedFrame) -> None:
        try:
            for at, header in batches_of(frame):
                position = frame.position + FRAME_BYTES + at
                self._findings.batches += 1
                self._batches[position] = header.base_offset, header.size
                self._seen.add((header.base_offset, header.size))
                if not is_crc_valid(frame.payload, at, header.size):
                    raise CorruptBatch(f"CRC of the batch at offset {header.base_offset} is wrong")
        except CorruptBatch as error:
            at = frame.position - base
            self._findings.problem("crc", path, error.reason, position=at)

    def _check_queue(
        self, state: StoredPartition, record: QueueRecord, checkpoint: StateCheckpoint | None
    ) -> None:
        folder = f"{self._directory}/{QUEUE_FOLDER}"
        file, first = record.open(folder)
        path = folder if file is None else file.path
        if file is not None:
            self._findings.files += 1
            content = read_file(self._disk, path) or b""
            wanted = file.entry_count * ENTRY_BYTES
            if len(content) < wanted:
                message = f"{wanted} bytes of {state.tp} expected, {len(content)} are there"
                self._findings.problem("consume-queue", path, message)
                return
            if crc32c(content[:wanted]) != file.crc:
                message = f"the entries of {state.tp} do not match their CRC"
                self._findings.problem("consume-queue", path, message)
                return
        handles = Handles(self._disk)
        try:
            queue = make_queue(ConsumeQueue(handles, file, first), record)
            for entry in queue.entries(queue.first, queue.end):
                self._check_entry(path, state, entry)
        finally:
            handles.close_all()

    def _check_entry(self, path: str, state: StoredPartition, entry: QueueEntry) -> None:
        """Frames after the checkpoint may have moved the batch, and its file may be gone."""
        seen = self._batches.get(entry.position)
        if seen != (entry.base_offset, entry.size):
            is_moved = (entry.base_offset, entry.size) in self._seen
            report = self._findings.note if is_moved else self._findings.problem
            message = (
                f"{state.tp}: the batch at offset {entry.base_offset} is not at position "
                f"{entry.position}"
            )
            report("consume-queue", path, message)


def scan_frames(
    disk: Disk, base: int, path: str
) -> Iterator[tuple[ScannedFrame | None, FrameScan]]:
    """The frames of a file in order; None in place of one or more that are damaged."""
    descriptor = disk.open(path, READ)
    try:
        end = base + disk.size(descriptor)
        scan = FrameScan(disk, descriptor, base=base, start=base, end=end)
        while True:
            for frame in scan:
                yield frame, scan
            if not scan.problem:
                return
            yield None, scan
            if not scan.resume():
                return
    finally:
        disk.close(descriptor)
