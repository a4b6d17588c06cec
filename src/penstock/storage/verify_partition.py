"""Checks one partition's folder: its names, its small files, and its segments as one log."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.io.disk import Disk, read_file
from penstock.storage.errors import CorruptSnapshot, MalformedCheckpoint
from penstock.storage.findings import LogFindings
from penstock.storage.leader_epoch_cache import EPOCH_FILE, EpochEntry, decode_epochs
from penstock.storage.log_files import FileKind, FileName, parse_name
from penstock.storage.partition_metadata import PARTITION_METADATA_FILE, decode_topic_id
from penstock.storage.producer_snapshot import decode, snapshot_name
from penstock.storage.producer_state_manager import ProducerStateEntry
from penstock.storage.recovery import LEAST_JUMP
from penstock.storage.segment_file import LOG_SUFFIX, file_name
from penstock.storage.verify_order import BatchOrder
from penstock.storage.verify_producers import ProducerReplay
from penstock.storage.verify_segment import Progress, SegmentCheck

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheck:
    """The check of one partition's folder."""

    disk: Disk
    findings: LogFindings
    directory: str
    is_clean_stop: bool  # a clean shutdown marker says that everything is on disk
    may_be_compacted: bool  # by the data directory's checkpoints
    with_records: bool
    progress: Progress

    def run(self) -> int | None:
        """The log end offset by its batches; None if the folder holds no log."""
        files = list(self._names())
        names = [name for name in files if not name.leftover]
        leftovers = [name for name in files if name.leftover]
        bases = sorted(_bases(names, FileKind.LOG))
        self._check_companions(names, set(bases))
        self._check_metadata()
        if not bases:
            self.findings.note("empty", self.directory, "holds no log file")
            return None
        epochs = self._read_epochs()
        snapshots = self._read_snapshots(names, bases[-1])
        may_be_compacted = self.may_be_compacted or _show_compaction(leftovers, bases)
        order = self._check_log(bases, epochs, snapshots, may_be_compacted)
        self._check_epoch_file(order)
        self._check_epoch_starts(epochs, order.expected_offset)
        return order.expected_offset

    # -- names -----------------------------------------------------------------------------

    def _names(self) -> Iterator[FileName]:
        for entry in sorted(self.disk.list(self.directory)):
            name = parse_name(entry.name)
            path = f"{self.directory}/{entry.name}"
            if entry.is_directory or name.kind is None:
                self.findings.note("unknown", path, "is not a file of a log")
            elif name.leftover:
                self._note_leftover(path, name)
                yield name
            elif name.kind in _NEEDS_OFFSET and name.base_offset is None:
                self.findings.problem(
                    "name", path, "the name of a segment's file is an offset of 20 digits"
                )
            else:
                yield name

    def _note_leftover(self, path: str, name: FileName) -> None:
        self.findings.note(
            "leftover",
            path,
            f"{name.leftover} marks a step that is running or was interrupted; the next start "
            f"finishes or removes it",
        )

    def _check_companions(self, names: list[FileName], bases: set[int]) -> None:
        for name in names:
            if name.kind in _INDEXES and name.base_offset not in bases:
                path = f"{self.directory}/{name.name}"
                if self._may_be_created(name, bases):
                    self.findings.note("orphan", path, "belongs to a segment that is being created")
                else:
                    self.findings.problem(
                        "orphan", path, "has no log file; the next start removes it"
                    )

    def _may_be_created(self, name: FileName, bases: set[int]) -> bool:
        """A listing takes time: it may show a new segment's index and miss its log."""
        newest = max(bases, default=-1)
        return not self.is_clean_stop and name.base_offset is not None and name.base_offset > newest

    # -- small files -----------------------------------------------------------------------

    def _check_metadata(self) -> None:
        path = f"{self.directory}/{PARTITION_METADATA_FILE}"
        content = self._read(path)
        if content is not None:
            try:
                decode_topic_id(content, path)
            except MalformedCheckpoint as error:
                self.findings.problem("checkpoint", path, error.problem, line=error.line)

    def _read_epochs(self) -> list[EpochEntry] | None:
        path = f"{self.directory}/{EPOCH_FILE}"
        content = self._read(path)
        try:
            return None if content is None else decode_epochs(content, path)
        except MalformedCheckpoint as error:
            self.findings.problem("checkpoint", path, error.problem, line=error.line)
            return None

    def _read_snapshots(
        self, names: list[FileName], active_base: int
    ) -> dict[int, list[ProducerStateEntry]]:
        snapshots = {}
        for offset in _bases(names, FileKind.SNAPSHOT):
            path = f"{self.directory}/{snapshot_name(offset)}"
            content = self._read(path)
            try:
                if content is not None:
                    snapshots[offset] = decode(content, path)
            except CorruptSnapshot as error:
                self._report_snapshot(path, error, is_new=offset >= active_base)
        return snapshots

    def _report_snapshot(self, path: str, error: CorruptSnapshot, *, is_new: bool) -> None:
        """A broker that is rolling the log, or was killed then, may have written only a part."""
        is_expected = is_new and not self.is_clean_stop
        report = self.findings.note if is_expected else self.findings.problem
        report("snapshot", path, str(error).removeprefix(f"{path} "))

    def _read(self, path: str) -> bytes | None:
        content = read_file(self.disk, path)
        if content is not None:
            self.findings.count_file(len(content))
        return content

    # -- the log ---------------------------------------------------------------------------

    def _check_log(
        self,
        bases: list[int],
        epochs: list[EpochEntry] | None,
        snapshots: dict[int, list[ProducerStateEntry]],
        may_be_compacted: bool,
    ) -> BatchOrder:
        order = BatchOrder(
            self.findings, epochs, first_offset=bases[0], is_clean_stop=self.is_clean_stop
        )
        producers = ProducerReplay(self.findings, self.directory)
        producers.start(bases[0], snapshots.get(bases[0]))
        waiting = _WaitingSnapshots(self.findings, self.directory, snapshots, producers)
        waiting.note_below(bases[0])
        waiting.compare_up_to(bases[0])
        for base_offset, following in zip(bases, [*bases[1:], None], strict=True):
            check = SegmentCheck(
                disk=self.disk,
                findings=self.findings,
                directory=self.directory,
                base_offset=base_offset,
                next_base_offset=following,
                is_clean_stop=self.is_clean_stop,
                with_records=self.with_records,
                order=order,
                producers=producers,
                on_offset=waiting.compare_up_to,
                progress=self.progress,
            )
            self._check_segment(check)
            if following is not None and order.expected_offset < following:
                self._report_gap(base_offset, following, order, may_be_compacted)
        waiting.compare_up_to(order.expected_offset)
        waiting.report_beyond(order.expected_offset)
        return order

    def _check_segment(self, check: SegmentCheck) -> None:
        try:
            check.run()
        except FileNotFoundError:
            check.order.lose_track()
            check.producers.lose_track()
            self.findings.note("gone", check.path, "was removed while the log was being read")
        except OSError as error:
            check.order.lose_track()
            check.producers.lose_track()
            path = error.filename or check.path
            self.findings.problem("unreadable", path, f"cannot be read: {error.strerror}")

    def _report_gap(
        self, base_offset: int, following: int, order: BatchOrder, may_be_compacted: bool
    ) -> None:
        path = f"{self.directory}/{file_name(base_offset, LOG_SUFFIX)}"
        missing = f"offsets {order.expected_offset} to {following - 1}"
        # A replica of a compacted log has gaps in its segments before its own cleaner has run.
        is_explained = may_be_compacted or not order.is_whole
        if is_explained or following - order.expected_offset >= LEAST_JUMP:
            self.findings.note(
                "gap",
                path,
                f"{missing} lie between this segment and the next: compaction removed them, or a "
                f"segment or its end is missing",
            )
        else:
            self.findings.problem(
                "gap",
                path,
                f"{missing} are missing between this segment and the next, and this log was never "
                f"compacted: a segment or its end is lost",
            )

    def _check_epoch_file(self, order: BatchOrder) -> None:
        """Unless the stop was clean there may be none: the first flush writes it."""
        path = f"{self.directory}/{EPOCH_FILE}"
        if self.is_clean_stop and order.latest_epoch >= 0 and not self.disk.exists(path):
            self.findings.problem(
                "missing", path, "is missing; the next start rebuilds it from the log"
            )

    def _check_epoch_starts(self, epochs: list[EpochEntry] | None, end_offset: int) -> None:
        for line, entry in enumerate(epochs or (), start=3):
            if entry.start_offset > end_offset:
                self.findings.problem(
                    "checkpoint",
                    f"{self.directory}/{EPOCH_FILE}",
                    f"epoch {entry.epoch} begins at offset {entry.start_offset}, but the log ends "
                    f"at {end_offset}",
                    line=line,
                )


class _WaitingSnapshots:
    """Compares each snapshot when the replay of the log reaches its offset."""

    def __init__(
        self,
        findings: LogFindings,
        directory: str,
        snapshots: dict[int, list[ProducerStateEntry]],
        producers: ProducerReplay,
    ) -> None:
        self._findings = findings
        self._directory = directory
        self._snapshots = snapshots
        self._producers = producers
        self._waiting = sorted(snapshots, reverse=True)

    def note_below(self, base_offset: int) -> None:
        while self._waiting and self._waiting[-1] < base_offset:
            path = self._path(self._waiting.pop())
            self._findings.note("orphan", path, "lies before the log's first segment")

    def compare_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1] <= offset:
            at = self._waiting.pop()
            self._producers.compare_snapshot(self._path(at), self._snapshots[at])

    def report_beyond(self, end_offset: int) -> None:
        for offset in reversed(self._waiting):
            self._findings.problem(
                "snapshot",
                self._path(offset),
                f"is of offset {offset}, but the log ends at {end_offset}",
            )

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_name(offset)}"


_NEEDS_OFFSET = (FileKind.LOG, FileKind.SNAPSHOT, *_INDEXES)


def _show_compaction(leftovers: list[FileName], bases: list[int]) -> bool:
    """Whether leftovers prove a compaction that has no checkpoint yet.

    Kafka writes the cleaner checkpoint only when a pass has ended. A replaced segment in the middle
    proves one, because retention removes segments only at the front and truncation at the end.
    """
    replaced = _bases(leftovers, FileKind.LOG)
    return any(bases[0] <= base_offset < bases[-1] for base_offset in replaced)


def _bases(names: list[FileName], kind: FileKind) -> list[int]:
    return [n.base_offset for n in names if n.kind is kind and n.base_offset is not None]
