"""The latest offset of every key in a log's dirty part, within a bound of memory.

Keys themselves are not kept: short ones stand for themselves, longer ones are known by a digest.
Invariant: every committed record below `end_offset` in the dirty part is in the map; control
records never are (KAFKA-14055).
"""

from collections.abc import Callable
from hashlib import blake2b

from penstock.protocol.batch import CONTROL, BatchHeader
from penstock.protocol.records import iter_keys
from penstock.storage.compaction_transactions import Transactions

# What an entry costs at worst, while the dict grows: 171 bytes by tracemalloc, and what the
# allocator rounds up.
ENTRY_BYTES = 192
# A key of at most this length is its own digest: no digest is as short, so the two never meet.
MAX_PLAIN_BYTES = 15
DIGEST_BYTES = 16


def digest_of(key: bytes) -> bytes:
    """Blake2b is faster here than md5 (1.4 to 2.0 microseconds), and nobody can make two keys
    collide to have the records of one deleted."""
    return key if len(key) <= MAX_PLAIN_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class KeyMap:
    """Filled batch by batch, in offset order, by one pass."""

    __slots__ = ("_capacity", "_first_offset", "_transactions", "end_offset", "latest")

    def __init__(
        self, *, first_offset: int, transactions: Transactions, capacity_bytes: int
    ) -> None:
        self.latest: dict[bytes, int] = {}
        self.end_offset = first_offset  # every batch below is in
        self._first_offset = first_offset
        self._transactions = transactions
        self._capacity = capacity_bytes // ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Asked between batches only: at least one always goes in, so every pass gets on."""
        return len(self.latest) >= max(1, self._capacity)

    def add(
        self, header: BatchHeader, content: memoryview, digest: Callable[[bytes], bytes] = digest_of
    ) -> None:
        if header.last_offset < self._first_offset:
            return
        is_data = header.record_count and not header.attributes & CONTROL
        if is_data and not self._transactions.is_aborted(header):
            self._add_keys(content, digest)
        self.end_offset = header.next_offset

    def _add_keys(self, content: memoryview, digest: Callable[[bytes], bytes]) -> None:
        latest, first_offset = self.latest, self._first_offset
        for offset, key, _, _ in iter_keys(content):
            if key is not None and offset >= first_offset:
                latest[key if len(key) <= MAX_PLAIN_BYTES else digest(key)] = offset
