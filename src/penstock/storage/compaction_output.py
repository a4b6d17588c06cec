"""The new segment that a pass writes: its log, both sparse indexes and its transaction index.

Writes `.cleaned` files only; `Swap` renames them. Everything is synced before `finish` returns.
"""

from collections.abc import Sequence

from penstock.io.disk import REPLACE, Buffer, Disk, read_fully, write_fully
from penstock.storage.handles import Handles
from penstock.storage.segment import Segment
from penstock.storage.segment_file import LOG_SUFFIX
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.swap import Swap
from penstock.storage.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedTxn, encode_entry

_COPY_BYTES = 1 << 20


class CleanedSegment:
    """Owned by the job that writes it, off the owner thread. Always call `close`."""

    def __init__(
        self,
        disk: Disk,
        swap: Swap,
        *,
        base_offset: int,
        index_interval_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self._disk = disk
        self._swap = swap
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray()
        self._descriptor = -1
        # Used only for its index entries in memory: it has no files and belongs to no log.
        self._noted = Segment(
            disk,
            Handles(disk),
            "",
            base_offset,
            created_ms=0,
            index_interval_bytes=index_interval_bytes,
            index_bytes=0,
        )
        self._noted.start_indexes()

    @property
    def size(self) -> int:
        return self._noted.size

    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Note the next batch."""
        self._noted.note_batch(self._noted.size, size, last_offset, max_timestamp)

    def write(self, batch: Buffer) -> None:
        self._buffer += batch
        if len(self._buffer) >= self._buffer_bytes:
            self._flush()

    def copy(self, source: int, length: int) -> None:
        """Copy the first bytes of another file, whose batches are noted already."""
        position = 0
        while position < length:
            chunk = read_fully(self._disk, source, min(_COPY_BYTES, length - position), position)
            if not chunk:
                raise EOFError(f"a segment ended at byte {position} of {length} while being copied")
            self.write(chunk)
            position += len(chunk)

    def finish(self, aborted: Sequence[AbortedTxn]) -> None:
        self._flush()
        self._disk.sync(self._descriptor)
        offsets, times = self._noted.encode_indexes()
        self._put(OFFSET_INDEX.suffix, offsets)
        self._put(TIME_INDEX.suffix, times)
        stale = self._swap.path(TRANSACTION_INDEX_SUFFIX)
        if aborted:
            self._put(TRANSACTION_INDEX_SUFFIX, b"".join(map(encode_entry, aborted)))
        elif self._disk.exists(stale):
            self._disk.unlink(stale)  # left by an abandoned pass

    def close(self) -> None:
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def _flush(self) -> None:
        if self._descriptor < 0:
            self._descriptor = self._disk.open(self._swap.path(LOG_SUFFIX), REPLACE)
        write_fully(self._disk, self._descriptor, self._buffer)
        self._buffer.clear()

    def _put(self, suffix: str, content: Buffer) -> None:
        descriptor = self._disk.open(self._swap.path(suffix), REPLACE)
        try:
            write_fully(self._disk, descriptor, content)
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
