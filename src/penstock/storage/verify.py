"""Checks a data directory or a partition's folder and reports every inconsistency it finds.

Reads only, takes no lock and needs no broker. Small files are read before the log they describe, so
that appends of a running broker do not look like a contradiction; a partition whose files come and
go meanwhile is checked again.
"""

import os
from collections.abc import Callable, Collection

from penstock.io.disk import DirectoryEntry, Disk, RealDisk, read_file
from penstock.model.ids import TopicPartition
from penstock.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
)
from penstock.storage.commit_log.verifying import (
    CommitLogCheck,
    has_commit_log,
    list_commit_log,
)
from penstock.storage.errors import MalformedCheckpoint
from penstock.storage.findings import LogFinding, LogFindings
from penstock.storage.log_directory import (
    LOCK_FILE,
    OTHER_SUFFIXES,
    is_deleted_folder,
    parse_folder_name,
)
from penstock.storage.log_files import FileKind, parse_name
from penstock.storage.partition_metadata import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    decode_meta_properties,
)
from penstock.storage.verify_partition import PartitionCheck
from penstock.storage.verify_running import check_running
from penstock.storage.verify_segment import Progress

_OFFSET_FILES = {
    RECOVERY_POINT_FILE: "everything below {offset} was flushed",
    LOG_START_FILE: "the log starts at {offset}",
    HIGH_WATERMARK_FILE: "the high watermark is {offset}",
    CLEANER_FILE: "everything below {offset} was compacted",
}


class NotALog(ValueError):
    """The path is neither a partition's folder nor a data directory."""


def verify_directory(
    path: str | os.PathLike[str],
    disk: Disk | None = None,
    *,
    records: bool = False,
    on_finding: Callable[[LogFinding], None] = lambda finding: None,
    progress: Progress = lambda count: None,
) -> LogFindings:
    """Check a partition's folder or a whole data directory; NotALog if it is neither."""
    disk = RealDisk() if disk is None else disk
    check = _DirectoryCheck(disk, os.fspath(path), LogFindings(on_finding), records, progress)
    check.run()
    return check.findings


def is_partition_folder(disk: Disk, path: str) -> bool:
    """Decided by its content, or by its name if it is empty."""
    entries = disk.list(path)
    kinds = {parse_name(entry.name).kind for entry in entries if not entry.is_directory}
    if kinds & {FileKind.LOG, FileKind.EPOCHS, FileKind.PARTITION_METADATA}:
        return True
    return not entries and parse_folder_name(_last_part(path)) is not None


def check_is_log(disk: Disk, path: str) -> None:
    """NotALog if the folder is neither a partition's nor a data directory."""
    if is_partition_folder(disk, path) or has_commit_log(disk, path):
        return
    for entry in disk.list(path):
        if _is_of_data_directory(disk, path, entry):
            return
    raise NotALog(
        f"{path} is neither a partition's folder nor a data directory: it holds no log, no "
        f"partition's folder and no checkpoint"
    )


def count_log_bytes(disk: Disk, path: str) -> int:
    """The size of all log files that a check of this path reads."""
    total = 0
    if has_commit_log(disk, path):
        return sum(disk.size_of(file) for _, file in list_commit_log(disk, path))
    for entry in disk.list(path):
        below = f"{path}/{entry.name}"
        if entry.is_directory:
            if parse_folder_name(entry.name) is not None:
                total += count_log_bytes(disk, below)
        elif parse_name(entry.name).kind is FileKind.LOG:
            total += disk.size_of(below)
    return total


class _DirectoryCheck:
    def __init__(
        self, disk: Disk, path: str, findings: LogFindings, with_records: bool, progress: Progress
    ) -> None:
        self.findings = findings
        self._disk = disk
        self._path = path.rstrip("/") or "/"
        self._with_records = with_records
        self._progress = progress

    def run(self) -> None:
        if is_partition_folder(self._disk, self._path):
            parent = os.path.dirname(os.path.abspath(self._path))
            is_clean = self._disk.exists(f"{parent}/{CLEAN_SHUTDOWN_FILE}")
            self._check_partition(self._path, is_clean, self._find_cleaned(parent))
            return
        if has_commit_log(self._disk, self._path):
            self._check_meta_properties()
            CommitLogCheck(self._disk, self._path, self.findings, self._progress).run()
            return
        check_is_log(self._disk, self._path)
        self._check_data_directory(sorted(self._disk.list(self._path)))

    def _check_data_directory(self, entries: list[DirectoryEntry]) -> None:
        is_clean = any(entry.name == CLEAN_SHUTDOWN_FILE for entry in entries)
        checkpoints = {name: self._read_offsets(name) for name in _OFFSET_FILES}
        cleaned = self._find_cleaned(self._path)
        self._check_meta_properties()
        ends: dict[TopicPartition, int] = {}
        for entry in entries:
            if not entry.is_directory:
                self._check_file_name(entry)
                continue
            tp = parse_folder_name(entry.name)
            if tp is None:
                self._check_folder_name(entry)
                continue
            folder = f"{self._path}/{entry.name}"
            end_offset = self._check_partition(folder, is_clean, cleaned)
            if end_offset is not None or self._disk.exists(folder):
                ends[tp] = 0 if end_offset is None else end_offset
        for name, offsets in checkpoints.items():
            self._compare(name, offsets, ends, is_clean)

    def _check_partition(
        self, folder: str, is_clean: bool, cleaned: Collection[TopicPartition] | None
    ) -> int | None:
        tp = parse_folder_name(_last_part(folder))
        check = PartitionCheck(
            disk=self._disk,
            findings=self.findings,
            directory=folder,
            is_clean_stop=is_clean,
            may_be_compacted=cleaned is None or tp is None or tp in cleaned,
            with_records=self._with_records,
            progress=self._progress,
        )
        try:
            return check_running(check)
        except OSError as error:
            self._report_unreadable(folder, error)
            return None

    def _report_unreadable(self, folder: str, error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and not self._disk.exists(folder):
            self.findings.note("gone", folder, "was removed while the directory was being read")
        else:
            path = error.filename or folder
            self.findings.problem("unreadable", path, f"cannot be read: {error.strerror}")

    # -- names -----------------------------------------------------------------------------

    def _check_file_name(self, entry: DirectoryEntry) -> None:
        path, name = f"{self._path}/{entry.name}", parse_name(entry.name)
        if name.leftover:
            self.findings.note("leftover", path, "a replacement of this file was interrupted")
        elif name.kind is None and entry.name != LOCK_FILE:
            self.findings.note("unknown", path, "is not a file of a data directory")

    def _check_folder_name(self, entry: DirectoryEntry) -> None:
        path = f"{self._path}/{entry.name}"
        if is_deleted_folder(entry.name):
            self.findings.note(
                "leftover", path, "belongs to a deleted partition; the next start removes it"
            )
        elif entry.name.endswith(OTHER_SUFFIXES):
            self.findings.note(
                "leftover", path, "is a replica being moved (-future) or left over (-stray)"
            )
        elif not entry.name.startswith(
            "."
        ):  # not the engine's, such as a single node's metadata store
            self.findings.note("unknown", path, "is not a partition's folder: <topic>-<number>")

    # -- small files -----------------------------------------------------------------------

    def _check_meta_properties(self) -> None:
        path = f"{self._path}/{META_PROPERTIES_FILE}"
        content = self._read(path)
        if content is not None:
            try:
                decode_meta_properties(content, path)
            except MalformedCheckpoint as error:
                self.findings.problem("checkpoint", path, error.problem, line=error.line)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self._path}/{name}"
        content = self._read(path)
        try:
            return {} if content is None else dict(decode_offsets(content, path))
        except MalformedCheckpoint as error:
            self.findings.problem("checkpoint", path, error.problem, line=error.line)
            return {}

    def _find_cleaned(self, directory: str) -> Collection[TopicPartition] | None:
        """The partitions that were compacted; None if no file says so."""
        path = f"{directory}/{CLEANER_FILE}"
        content = read_file(self._disk, path)
        if content is None:
            is_served = self._disk.exists(f"{directory}/{RECOVERY_POINT_FILE}")
            return () if is_served else None
        try:
            return decode_offsets(content, path)
        except MalformedCheckpoint:
            return None

    def _read(self, path: str) -> bytes | None:
        content = read_file(self._disk, path)
        if content is not None:
            self.findings.count_file(len(content))
        return content

    def _compare(
        self,
        name: str,
        offsets: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        is_clean: bool,
    ) -> None:
        path = f"{self._path}/{name}"
        for line, (tp, offset) in enumerate(offsets.items(), start=3):
            if tp not in ends:
                self.findings.note(
                    "checkpoint", path, f"names {tp}, which has no folder here", line=line
                )
            elif offset > ends[tp]:
                # After a crash an unflushed tail may be gone, but never what was flushed.
                is_loss = is_clean or name == RECOVERY_POINT_FILE
                report = self.findings.problem if is_loss else self.findings.note
                claim = _OFFSET_FILES[name].format(offset=offset)
                message = f"{tp}: {claim}, but the log ends at {ends[tp]}"
                report("checkpoint", path, message, line=line)


def _is_of_data_directory(disk: Disk, path: str, entry: DirectoryEntry) -> bool:
    if not entry.is_directory:
        return entry.name == LOCK_FILE or parse_name(entry.name).kind is not None
    has_partition_name = parse_folder_name(entry.name) is not None
    return has_partition_name and is_partition_folder(disk, f"{path}/{entry.name}")


def _last_part(path: str) -> str:
    return os.path.basename(os.path.abspath(path))
