"""Reads the files of a log item by item, for `log dump` and `log verify`: batches, entries, names.

Needs no broker and changes nothing, so it works beside a running one. Damage is an item like the
others, not an exception; only OSErrors are raised.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from penstock.io.disk import READ, Disk
from penstock.protocol.batch import ATTRIBUTES_POSITION, BatchHeader, CorruptBatch, check_header
from penstock.protocol.checksum import crc32c
from penstock.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from penstock.storage.leader_epoch_cache import EPOCH_FILE
from penstock.storage.partition_metadata import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
)
from penstock.storage.scan import Scan
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX, IndexEntry, IndexFormat
from penstock.storage.swap import CLEANED, DELETED, SWAP, TEMPORARY

LEFTOVER_SUFFIXES = (CLEANED, SWAP, DELETED, TEMPORARY)


class FileKind(Enum):
    LOG = "log"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "producer snapshot"
    EPOCHS = "leader epochs"
    OFFSETS = "offsets of partitions"
    PARTITION_METADATA = "partition metadata"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = "clean shutdown marker"


_BY_NAME = {
    EPOCH_FILE: FileKind.EPOCHS,
    RECOVERY_POINT_FILE: FileKind.OFFSETS,
    LOG_START_FILE: FileKind.OFFSETS,
    HIGH_WATERMARK_FILE: FileKind.OFFSETS,
    CLEANER_FILE: FileKind.OFFSETS,
    PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    META_PROPERTIES_FILE: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
}
_BY_SUFFIX = {
    ".log": FileKind.LOG,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TRANSACTION_INDEX,
    ".snapshot": FileKind.SNAPSHOT,
}
_STEM = re.compile(r"[0-9]{20}")


class FileName(NamedTuple):
    """A parsed file name."""

    name: str
    kind: FileKind | None  # None: not a file of a log
    base_offset: int | None  # None: the name holds none, or not as 20 digits
    leftover: str  # `.cleaned`, `.swap`, `.deleted`, `.tmp` or nothing


def parse_name(name: str) -> FileName:
    bare, leftover = name, ""
    for suffix in LEFTOVER_SUFFIXES:
        if name.endswith(suffix):
            bare, leftover = name.removesuffix(suffix), suffix
    if bare in _BY_NAME:
        return FileName(name, _BY_NAME[bare], None, leftover)
    stem, dot, suffix = bare.partition(".")
    kind = _BY_SUFFIX.get(dot + suffix)
    is_offset = kind is not None and _STEM.fullmatch(stem) and int(stem) < 2**63
    return FileName(name, kind, int(stem) if is_offset else None, leftover)


@contextmanager
def opened(disk: Disk, path: str) -> Iterator[int]:
    """A descriptor for reading the file."""
    descriptor = disk.open(path, READ)
    try:
        yield descriptor
    finally:
        disk.close(descriptor)


# -- batches -------------------------------------------------------------------------------


class SeenBatch(NamedTuple):
    """A batch whose length is plausible. `content` is valid until the next step."""

    position: int
    header: BatchHeader
    content: memoryview
    crc_problem: str | None
    header_problem: str | None  # None if the CRC is wrong: then no field can be trusted

    @property
    def end_position(self) -> int:
        return self.position + self.header.size


class Damage(NamedTuple):
    """No batch can be read here, so it is unknown where the next one starts."""

    position: int
    problem: str


def walk_batches(
    disk: Disk, descriptor: int, *, start: int, end: int
) -> Iterator[SeenBatch | Damage]:
    """Every batch from `start`, a batch boundary, up to `end` or the first damage."""
    scan = Scan(disk, descriptor, start=start, end=end, check_crc=False)
    for position, header, content in scan:
        yield _check_batch(position, header, content)
    if scan.problem is not None:
        # The header check does not know the position and reports 0.
        yield Damage(scan.position, scan.problem.removeprefix("batch at position 0 has "))


def _check_batch(position: int, header: BatchHeader, content: memoryview) -> SeenBatch:
    crc = crc32c(content[ATTRIBUTES_POSITION:])
    if crc != header.crc:
        problem = f"the CRC of the bytes is {crc:#010x}, the header says {header.crc:#010x}"
        return SeenBatch(position, header, content, problem, None)
    return SeenBatch(position, header, content, None, _find_header_problem(header))


def _find_header_problem(header: BatchHeader) -> str | None:
    try:
        check_header(header, header.size)
    except CorruptBatch as error:
        return error.reason
    return None


# -- sparse indexes ------------------------------------------------------------------------


class IndexContent(NamedTuple):
    entries: list[IndexEntry]
    zeros_position: int | None  # where a tail of zeros starts, if there is one
    torn_bytes: int  # after the last whole entry


def decode_index(content: bytes, index_format: IndexFormat) -> IndexContent:
    """The entries before a tail of zeros, as preallocation and crashes leave it."""
    width = index_format.entry.size
    torn_bytes = len(content) % width
    whole = len(content) - torn_bytes
    used = len(content[:whole].rstrip(b"\0"))
    used += -used % width
    entries = [IndexEntry(*pair) for pair in index_format.entry.iter_unpack(content[:used])]
    return IndexContent(entries, used if used < whole else None, torn_bytes)


def find_start(index: bytes, relative_offset: int) -> int:
    """The position of the last indexed batch that ends at or before the offset, else 0."""
    position = 0
    for key, value in decode_index(index, OFFSET_INDEX).entries:
        if key > relative_offset:
            break
        position = value
    return position


def format_of(kind: FileKind) -> IndexFormat:
    return TIME_INDEX if kind is FileKind.TIME_INDEX else OFFSET_INDEX
