"""Aborted transactions of one segment, in Kafka's `.txnindex` format: 34 bytes an entry.

Bytes and search only; the segment owns the file. Entries are in the order of their markers, so
last offsets strictly increase; first offsets need not.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.model.ids import Offset, ProducerId
from penstock.storage.errors import MalformedTransactionIndex

_ENTRY = struct.Struct(">hqqqq")  # version, then the fields of AbortedTransaction
_VERSION = 0
ENTRY_BYTES = _ENTRY.size


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    last_stable_offset: Offset  # once this transaction was over: no later entry begins before it


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
    """Those that touch [fetch_offset, upper_bound_offset), and whether that is all of them.

    False: transactions that began below the bound may have been aborted in a later segment, so
    the search goes on in its index.
    """
    found: list[AbortedTxn] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False


def _find_problem(fields: tuple[int, ...], before: list[AbortedTxn]) -> str | None:
    version, producer_id, first_offset, last_offset, last_stable_offset = fields
    if version != _VERSION:
        return f"version {version} is unknown, {_VERSION} expected"
    if producer_id < 0 or not 0 <= first_offset < last_offset or last_stable_offset < 0:
        return f"{AbortedTxn._make(fields[1:])} is impossible"
    if before and last_offset <= before[-1].last_offset:
        return f"last offset {last_offset} does not follow {before[-1].last_offset}"
    return None
