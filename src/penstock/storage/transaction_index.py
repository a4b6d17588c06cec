"""Aborted transactions of one segment, in Kafka's `.txnindex` format: 34 bytes an entry.

Not the decision which transactions are aborted. Entries are in the order of their markers, so last
offsets strictly increase; first offsets need not.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.io.disk import CREATE, REPLACE, Disk, read_file, replace_file, write_fully
from penstock.model.ids import Offset, ProducerId
from penstock.storage.errors import MalformedTransactionIndex

TRANSACTION_INDEX_SUFFIX = ".txnindex"
_ENTRY = struct.Struct(">hqqqq")  # version, then the fields of AbortedTxn
_VERSION = 0
ENTRY_BYTES = _ENTRY.size


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    last_stable_offset: Offset  # once this transaction was over: no later entry begins before it


class TransactionIndex:
    """The index file of one segment, which owns it. A segment without aborts has no file."""

    __slots__ = ("_disk", "_entries", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[AbortedTxn] | None = None  # None: not loaded yet

    @property
    def entries(self) -> list[AbortedTxn]:
        """MalformedTransactionIndex where the file does not decode."""
        if self._entries is None:
            content = read_file(self._disk, self.path) or b""
            self._entries = decode_entries(content, self.path)
        return self._entries

    def start_empty(self) -> None:
        self._entries = []

    def unload(self) -> list[AbortedTxn] | None:
        """Load the entries from the file again when they are next needed."""
        entries, self._entries = self._entries, None
        return entries

    def restore(self, entries: list[AbortedTxn] | None) -> None:
        """Take back what `unload` returned."""
        self._entries = entries

    def seal(self) -> None:
        """Keep entries on disk only; an empty list stays, so that no look-up opens a file."""
        self._entries = None if self._entries else self._entries

    def append(self, entry: AbortedTxn) -> None:
        self.entries.append(entry)
        self._write(CREATE, encode_entry(entry))

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose marker is not below `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        self._entries = kept
        if kept:
            self._write(REPLACE, b"".join(map(encode_entry, kept)))
        elif self._disk.exists(self.path):
            self._disk.unlink(self.path)

    def store(self) -> None:
        """Replace the file atomically by the entries in memory.

        A crash must not leave a part of it, because the index of a segment below the recovery point
        is not checked.
        """
        content = b"".join(map(encode_entry, self.entries))
        if content == (read_file(self._disk, self.path) or b""):
            return
        if content:
            replace_file(self._disk, self.path, content)
        else:
            self._disk.unlink(self.path)

    def _write(self, flags: int, content: bytes) -> None:
        descriptor = self._disk.open(self.path, flags)
        try:
            write_fully(self._disk, descriptor, content)
        finally:
            self._disk.close(descriptor)


def encode_entry(entry: AbortedTxn) -> bytes:
    return _ENTRY.pack(_VERSION, *entry)


def decode_entries(
    content: bytes | memoryview, path: str = "transaction index"
) -> list[AbortedTxn]:
    """All entries, or MalformedTransactionIndex with those before the first flaw."""
    entries: list[AbortedTxn] = []
    tail_bytes = len(content) % ENTRY_BYTES
    for fields in _ENTRY.iter_unpack(content[: len(content) - tail_bytes]):
        problem = _find_problem(fields, entries)
        if problem is not None:
            raise MalformedTransactionIndex(path, entries, problem)
        entries.append(AbortedTxn._make(fields[1:]))
    if tail_bytes:
        raise MalformedTransactionIndex(path, entries, f"ends mid-entry ({tail_bytes} bytes)")
    return entries


def collect_aborted(
    entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound_offset: int
) -> tuple[list[AbortedTxn], bool]:
    """The transactions that touch [fetch_offset, upper_bound_offset), and whether these are all.

    False: transactions that began below the bound may have been aborted in a later segment, so
    the search continues in its index.
    """
    aborted: list[AbortedTxn] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            aborted.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return aborted, True
    return aborted, False


def _find_problem(fields: tuple[int, ...], before: list[AbortedTxn]) -> str | None:
    version, producer_id, first_offset, last_offset, last_stable_offset = fields
    if version != _VERSION:
        return f"version {version} is unknown, {_VERSION} expected"
    if producer_id < 0 or not 0 <= first_offset < last_offset or last_stable_offset < 0:
        return f"{AbortedTxn._make(fields[1:])} is impossible"
    if before and last_offset <= before[-1].last_offset:
        return f"last offset {last_offset} does not follow {before[-1].last_offset}"
    return None
