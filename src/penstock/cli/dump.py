"""`penstock log dump`: decides what is shown and in which order; a view formats it.

Never raises for damaged files: each damage becomes a line in `damage`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.io.disk import Disk, read_file, read_fully
from penstock.protocol.batch import CorruptBatch, read_header
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import Record, iter_records
from penstock.storage.checkpoints import decode_offsets
from penstock.storage.commit_log.frame_scan import ScannedFrame
from penstock.storage.commit_log.frames import FrameKind
from penstock.storage.commit_log.verifying import (
    batches_of,
    has_commit_log,
    list_commit_log,
    scan_frames,
)
from penstock.storage.errors import StorageError
from penstock.storage.leader_epoch_cache import decode_epochs
from penstock.storage.log_directory import parse_folder_name
from penstock.storage.log_files import (
    Damage,
    FileKind,
    FileName,
    SeenBatch,
    decode_index,
    find_start,
    format_of,
    opened,
    parse_name,
    walk_batches,
)
from penstock.storage.partition_metadata import decode_meta_properties, decode_topic_id, encode_uuid
from penstock.storage.producer_snapshot import decode as decode_snapshot
from penstock.storage.transaction_index import decode_entries
from penstock.storage.verify import is_partition_folder

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    deep: bool = False
    from_offset: int = 0
    max_batches: int | None = None


class DumpView(Protocol):
    def file(self, path: str, kind: str, size_bytes: int) -> None: ...
    def batch(self, fields: Fields) -> None: ...
    def record(self, record: Record, marker: str | None) -> None: ...
    def entry(self, kind: str, fields: Fields) -> None: ...
    def damage(self, path: str, position: int | None, problem: str) -> None: ...


class Dump:
    """One run of the command."""

    def __init__(
        self,
        disk: Disk,
        view: DumpView,
        options: DumpOptions,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.damage: list[str] = []
        self._disk = disk
        self._view = view
        self._options = options
        self._progress = progress
        self._batches = 0

    def _has_enough(self) -> bool:
        wanted = self._options.max_batches
        return wanted is not None and self._batches >= wanted

    def dump(self, path: str) -> None:
        try:
            if not os.path.isdir(path):
                self._dump_file(path)
            elif is_partition_folder(self._disk, path):
                self._dump_folder(path)
            else:
                self._dump_data_directory(path)
        except OSError as error:
            self._report(error.filename or path, None, f"cannot be read: {error.strerror}")

    # -- folders ---------------------------------------------------------------------------

    def _dump_data_directory(self, path: str) -> None:
        entries = sorted(self._disk.list(path))
        for entry in entries:
            if not entry.is_directory and parse_name(entry.name).kind is not None:
                self._dump_file(f"{path}/{entry.name}")
        if has_commit_log(self._disk, path):
            self._dump_commit_log(path)
        folders = [e for e in entries if e.is_directory and parse_folder_name(e.name) is not None]
        for entry in folders:
            if not self._has_enough():
                self.dump(f"{path}/{entry.name}")

    def _dump_commit_log(self, directory: str) -> None:
        """Its frames, and the batches in them; `--deep` shows no records here."""
        for base, path in list_commit_log(self._disk, directory):
            self._view.file(path, "commit log", self._disk.size_of(path))
            for frame, scan in scan_frames(self._disk, base, path):
                if self._has_enough():
                    return
                if frame is None:
                    self._report(path, scan.position - base, scan.problem)
                else:
                    self._dump_frame(path, frame)

    def _dump_frame(self, path: str, frame: ScannedFrame) -> None:
        fields = {
            "position": frame.position,
            "frame": FrameKind(frame.kind).name.lower(),
            "partition_number": frame.number,
            "previous": frame.previous,
            "payload_bytes": len(frame.payload),
        }
        self._view.entry("frame", fields)
        try:
            for at, header in batches_of(frame):
                if header.last_offset >= self._options.from_offset:
                    self._batches += 1
                    batch = {"position": frame.position + at, **header._asdict()}
                    self._view.entry("batch-in-frame", batch)
        except CorruptBatch as error:
            self._report(path, frame.position, error.reason)

    def _dump_folder(self, path: str) -> None:
        names = [parse_name(e.name) for e in self._disk.list(path) if not e.is_directory]
        files = [name for name in names if name.kind is not None]
        bases = sorted(n.base_offset for n in files if _is_log(n) and n.base_offset is not None)
        last_base: int | None = None
        for name in sorted(files, key=_sort_key):
            if self._has_enough() and name.base_offset != last_base:
                break
            if not self._is_below(name, bases):
                self._dump_file(f"{path}/{name.name}")
                last_base = name.base_offset

    def _is_below(self, name: FileName, bases: list[int]) -> bool:
        """Whether the file belongs to a segment that ends before the first wanted offset."""
        if name.base_offset is None:
            return False
        following = [base for base in bases if base > name.base_offset]
        return bool(following) and following[0] <= self._options.from_offset

    # -- files -----------------------------------------------------------------------------

    def _dump_file(self, path: str) -> None:
        try:
            self._dump_readable(path)
        except OSError as error:
            self._report(path, None, f"cannot be read: {error.strerror}")

    def _dump_readable(self, path: str) -> None:
        name = parse_name(os.path.basename(path))
        assert name.kind is not None, f"{path} is not a file of a log"
        if name.kind is FileKind.LOG:
            self._dump_log(path, name)
            return
        content = read_file(self._disk, path)
        if content is None:
            self._report(path, None, "was removed meanwhile")
            return
        self._view.file(path, name.kind.value, len(content))
        try:
            self._dump_content(path, name, content)
        except StorageError as error:
            self._report(path, None, str(error).removeprefix(path).lstrip(", "))

    def _dump_content(self, path: str, name: FileName, content: bytes) -> None:
        match name.kind:
            case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
                self._dump_index(path, name, content)
            case FileKind.TRANSACTION_INDEX:
                for aborted in decode_entries(content, path):
                    if aborted.last_offset >= self._options.from_offset:
                        self._view.entry("aborted-transaction", aborted._asdict())
            case FileKind.SNAPSHOT:
                for producer in decode_snapshot(content, path):
                    self._view.entry("producer", producer._asdict())
            case FileKind.EPOCHS:
                for epoch in decode_epochs(content, path):
                    self._view.entry("epoch", epoch._asdict())
            case FileKind.OFFSETS:
                for tp, offset in decode_offsets(content, path).items():
                    self._view.entry("offset", {**tp._asdict(), "offset": offset})
            case _:
                self._dump_metadata(path, name, content)

    def _dump_metadata(self, path: str, name: FileName, content: bytes) -> None:
        if name.kind is FileKind.PARTITION_METADATA:
            topic_id = encode_uuid(decode_topic_id(content, path))
            self._view.entry("partition-metadata", {"topic_id": topic_id})
        elif name.kind is FileKind.META_PROPERTIES:
            meta = decode_meta_properties(content, path)
            directory_id = meta.directory_id and encode_uuid(meta.directory_id)
            fields = {
                "version": meta.version,
                "node_id": meta.node_id,
                "cluster_id": meta.cluster_id,
                "directory_id": directory_id,
            }
            self._view.entry("meta-properties", fields)

    def _dump_index(self, path: str, name: FileName, content: bytes) -> None:
        assert name.kind is not None
        base, index_format = name.base_offset or 0, format_of(name.kind)
        index = decode_index(content, index_format)
        for number, (key, value) in enumerate(index.entries):
            position = number * index_format.entry.size
            if name.kind is FileKind.OFFSET_INDEX:
                offset, fields = base + key, {"offset": base + key, "position": value}
            else:
                offset, fields = base + value, {"timestamp_ms": key, "offset": base + value}
            if offset >= self._options.from_offset:
                self._view.entry(name.kind.value.replace(" ", "-"), {"at": position, **fields})
        if index.zeros_position is not None:
            self._view.entry("zeros", {"at": index.zeros_position, "until": len(content)})
        if index.torn_bytes:
            at = len(content) - index.torn_bytes
            self._report(path, at, f"ends mid-entry ({index.torn_bytes} bytes)")

    # -- batches ---------------------------------------------------------------------------

    def _dump_log(self, path: str, name: FileName) -> None:
        with opened(self._disk, path) as descriptor:
            size = self._disk.size(descriptor)
            self._view.file(path, FileKind.LOG.value, size)
            start = done = self._find_start(path, name, descriptor, size)
            for item in walk_batches(self._disk, descriptor, start=start, end=size):
                if isinstance(item, Damage):
                    self._report(path, item.position, f"no batch can be read: {item.problem}")
                elif item.header.last_offset >= self._options.from_offset:
                    self._dump_batch(path, item)
                    self._progress(item.end_position - done)
                    done = item.end_position
                    if self._has_enough():
                        break

    def _find_start(self, path: str, name: FileName, descriptor: int, size: int) -> int:
        """The indexed position before the first wanted batch, if the log confirms it; else 0."""
        if not self._options.from_offset or name.base_offset is None or name.leftover:
            return 0
        index = read_file(self._disk, path.removesuffix(".log") + ".index") or b""
        position = find_start(index, self._options.from_offset - name.base_offset)
        try:
            header = read_header(read_fully(self._disk, descriptor, 61, position))
        except CorruptBatch:
            return 0
        is_right = name.base_offset <= header.base_offset <= self._options.from_offset
        return position if is_right and position + header.size <= size else 0

    def _dump_batch(self, path: str, batch: SeenBatch) -> None:
        self._batches += 1
        is_valid = batch.crc_problem is None and batch.header_problem is None
        marker = self._read_marker(path, batch) if is_valid and batch.header.is_control else None
        self._view.batch(_describe(batch, marker))
        for problem in (batch.crc_problem, batch.header_problem):
            if problem is not None:
                self._report(path, batch.position, problem)
        if self._options.deep and is_valid:
            self._dump_records(path, batch, marker)

    def _read_marker(self, path: str, batch: SeenBatch) -> str | None:
        try:
            marker = read_end_marker(batch.content)
        except CorruptBatch as error:
            self._report(path, batch.position, error.reason)
            return None
        if marker is None:
            return "OTHER"
        return f"{'COMMIT' if marker.commit else 'ABORT'} by coordinator {marker.coordinator_epoch}"

    def _dump_records(self, path: str, batch: SeenBatch, marker: str | None) -> None:
        try:
            for record in iter_records(batch.content):
                if record.offset >= self._options.from_offset:
                    self._view.record(record, marker)
        except CorruptBatch as error:
            self._report(path, batch.position, error.reason)

    def _report(self, path: str, position: int | None, problem: str) -> None:
        location = path if position is None else f"{path}, position {position}"
        self.damage.append(f"{location}: {problem}")
        self._view.damage(path, position, problem)


def _describe(batch: SeenBatch, marker: str | None) -> Fields:
    header = batch.header
    has_horizon = header.has_delete_horizon
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size": header.size,
        "position": batch.position,
        "epoch": header.leader_epoch,
        "codec": _CODECS.get(header.codec, f"unknown ({header.codec})"),
        "base_timestamp_ms": None if has_horizon else header.base_timestamp,
        "delete_horizon_ms": header.base_timestamp if has_horizon else None,
        "max_timestamp_ms": header.max_timestamp,
        "append_time": header.is_append_time,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "marker": marker,
        "crc": header.crc,
        "crc_ok": batch.crc_problem is None,
    }


_CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def _is_log(name: FileName) -> bool:
    return name.kind is FileKind.LOG and not name.leftover


_ORDER = list(FileKind)


def _sort_key(name: FileName) -> tuple[int, int, str]:
    """Files without an offset first, then segment by segment."""
    assert name.kind is not None
    base = -1 if name.base_offset is None else name.base_offset
    return base, _ORDER.index(name.kind), name.name
