"""The latest offset of every key in a log's dirty part, in bounded memory.

Short keys are stored as they are, longer ones as a digest. Invariant: every committed record below
`end_offset` in the dirty part is in the map; control records never are (KAFKA-14055).
"""

from hashlib import blake2b

from penstock.protocol.batch import CONTROL, BatchHeader
from penstock.protocol.records import iter_keys
from penstock.storage.compaction_transactions import CleanedTransactionMetadata

# An entry takes 186 bytes by tracemalloc right after the dict has grown, and 126 before.
ENTRY_BYTES = 192
# A key shorter than a digest is stored as it is, so the two never collide. 31 bytes take no more
# memory than 16, because a bytes object of either size takes 64.
DIGEST_BYTES = 31
MAX_PLAIN_BYTES = DIGEST_BYTES - 1


def digest_of(key: bytes) -> bytes:
    """Blake2b is faster here than md5 (1.4 against 2.0 microseconds), and nobody can craft two keys
    that collide so that the records of one are deleted."""
    return key if len(key) <= MAX_PLAIN_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """Filled batch by batch, in offset order, by one pass."""

    __slots__ = ("_capacity", "_first_offset", "_transactions", "end_offset", "latest")

    def __init__(
        self, *, first_offset: int, transactions: CleanedTransactionMetadata, capacity_bytes: int
    ) -> None:
        self.latest: dict[bytes, int] = {}
        self.end_offset = first_offset  # every batch below is in the map
        self._first_offset = first_offset
        self._transactions = transactions
        self._capacity = capacity_bytes // ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Checked between batches only: at least one goes in, so every pass makes progress."""
        return len(self.latest) >= max(1, self._capacity)

    def add(self, header: BatchHeader, content: memoryview) -> None:
        if header.last_offset < self._first_offset:
            return
        is_data = header.record_count and not header.attributes & CONTROL
        if is_data and not self._transactions.is_aborted(header):
            self._add_keys(content)
        self.end_offset = header.next_offset

    def _add_keys(self, content: memoryview) -> None:
        latest, first_offset, digest = self.latest, self._first_offset, digest_of
        for offset, key, _, _ in iter_keys(content):
            if key is not None and offset >= first_offset:
                latest[key if len(key) <= MAX_PLAIN_BYTES else digest(key)] = offset
