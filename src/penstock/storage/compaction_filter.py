"""Decides about one batch in a pass: keep it, rebuild it with fewer records, empty it or drop it.

Pure: bytes in, bytes out. Invariant: offsets, sequences, epochs and timestamps of the records that
stay never change, and the last state of every producer in the producer state stays readable.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.protocol.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)
from penstock.protocol.compression import Codec
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import (
    build_batch,
    iter_records,
    replace_records,
    walk_records,
)
from penstock.storage.compaction_plan import NO_HORIZON_MS
from penstock.storage.compaction_transactions import CleanedTransactionMetadata
from penstock.storage.offset_map import MAX_PLAIN_BYTES, digest_of
from penstock.storage.transaction_index import AbortedTxn


class LastBatch(NamedTuple):
    """A producer's last data batch in the log, and its epoch."""

    last_offset: int  # -1 if its current epoch has no batch
    producer_epoch: int


class _Picked(NamedTuple):
    record_count: int
    max_timestamp_ms: int
    encoded: bytes
    has_tombstones: bool


_NOTHING = _Picked(0, -1, b"", False)


class BatchFilter:
    """The rules of one pass; gets every batch of the log in order, from the first on."""

    def __init__(
        self,
        *,
        latest: Mapping[bytes, int],
        end_offset: int,
        transactions: CleanedTransactionMetadata,
        producers: Mapping[int, LastBatch],
        held_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.next_horizon_ms = NO_HORIZON_MS  # the earliest of those left in the log
        self._latest = latest
        self._end_offset = end_offset  # batches from here on are not part of this pass
        self._transactions = transactions
        self._producers = producers
        self._held_offset = held_offset  # the batch that ends here is at least kept empty
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._aborted: list[AbortedTxn] = []

    def apply(self, header: BatchHeader, content: memoryview) -> Buffer | None:
        """The batch to write, or None to drop it; `content` itself if it stays unchanged."""
        if header.attributes & CONTROL and header.is_marker:
            return self._filter_marker(header, content)
        kept: Buffer | None = content
        if header.base_offset < self._end_offset:
            is_data = not header.attributes & CONTROL
            filter_batch = self._filter_data if is_data else self._filter_sequences
            kept = filter_batch(header, content)
        if kept is not None and header.attributes & TRANSACTIONAL:
            self._transactions.keep(header.producer_id)
        return kept

    def take_aborted(self) -> list[AbortedTxn]:
        """The index entries still needed for the markers seen since the last call."""
        taken, self._aborted = self._aborted, []
        return taken

    # -- data ------------------------------------------------------------------------------

    def _filter_data(self, header: BatchHeader, content: memoryview) -> Buffer | None:
        picked = _NOTHING
        if header.record_count and not self._transactions.is_aborted(header):
            picked = self._pick(header, content)
        if not picked.record_count:
            # Dropping it would lose its last sequence (KAFKA-5490). Others go, because some clients
            # do not get past a response without records.
            is_needed = self._is_held(header) or self._is_last_of_producer(header)
            return self._emptied(header, content) if is_needed else None
        kept: Buffer = content
        if picked.record_count < header.record_count:
            kept = replace_records(
                header,
                picked.encoded,
                record_count=picked.record_count,
                max_timestamp_ms=(
                    header.max_timestamp if header.is_append_time else picked.max_timestamp_ms
                ),
            )
        return self._with_horizon(header, kept) if picked.has_tombstones else kept

    def _pick(self, header: BatchHeader, content: memoryview) -> _Picked:
        """The records without a later one of the same key.

        Records without a key are dropped, as in Kafka: they are older than the topic's compaction,
        and nothing could ever replace them.
        """
        data, walk = walk_records(content)
        find, digest = self._latest.get, digest_of
        drops_tombstones = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        pieces: list[bytes] = []
        count, max_timestamp_ms, has_tombstones = 0, -1, False
        piece = start = 0  # where the run of kept records starts, and the current record
        for offset, timestamp_ms, key, value_start, _, end in walk:
            if (
                key is not None
                and find(key if len(key) <= MAX_PLAIN_BYTES else digest(key), -1) <= offset
                and (value_start >= 0 or not drops_tombstones)
            ):
                count += 1
                if timestamp_ms > max_timestamp_ms:
                    max_timestamp_ms = timestamp_ms
                if value_start < 0:
                    has_tombstones = True
            else:
                if piece < start:
                    pieces.append(data[piece:start])
                piece = end
            start = end
        if piece < start:
            pieces.append(data[piece:start])
        return _Picked(count, max_timestamp_ms, b"".join(pieces), has_tombstones)

    def _is_held(self, header: BatchHeader) -> bool:
        return header.last_offset == self._held_offset

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        # No batch in its epoch: only a marker records it and fences older instances.
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _filter_sequences(self, header: BatchHeader, content: memoryview) -> Buffer | None:
        """In place of records that are kept elsewhere: only its sequences matter."""
        is_needed = self._is_held(header) or self._is_last_of_producer(header)
        return content if is_needed else None

    # -- markers ---------------------------------------------------------------------------

    def _filter_marker(self, header: BatchHeader, content: memoryview) -> Buffer | None:
        if not header.record_count:
            return content if self._is_held(header) else None  # emptied before, to hold the end
        marker = read_end_marker(content)
        if marker is None:
            return content
        has_data = self._transactions.try_end(header.producer_id)
        if has_data and not marker.commit:
            entry = self._transactions.find_entry(header)
            if entry is not None:
                self._aborted.append(entry)
        if has_data or header.base_offset >= self._end_offset:
            return content
        return self._filter_lone_marker(header, content)

    def _filter_lone_marker(self, header: BatchHeader, content: memoryview) -> Buffer | None:
        """Nothing is left of its transaction, so it is dropped like a tombstone: a consumer that
        has read the data must still see how it ended (KAFKA-8522)."""
        if self._is_last_of_producer(header):
            return content
        if header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            return self._emptied(header, content) if self._is_held(header) else None
        return self._with_horizon(header, content)

    # -- rebuilding ------------------------------------------------------------------------

    def _emptied(self, header: BatchHeader, content: memoryview) -> Buffer:
        if not header.record_count:
            return content
        # No timestamp either, or the time index would point at a batch without records.
        return replace_records(header, b"", record_count=0, max_timestamp_ms=-1)

    def _with_horizon(self, header: BatchHeader, kept: Buffer) -> Buffer:
        """Add the time when its tombstones may be dropped; the first pass sets it (KIP-534)."""
        if header.has_delete_horizon:
            self.next_horizon_ms = min(self.next_horizon_ms, header.base_timestamp)
            return kept
        horizon_ms = self._now_ms + self._delete_retention_ms
        self.next_horizon_ms = min(self.next_horizon_ms, horizon_ms)
        kept_header = read_header(kept)
        return build_batch(
            list(iter_records(kept)),
            base_offset=header.base_offset,
            codec=Codec(header.codec),
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            append_time_ms=header.max_timestamp if header.is_append_time else None,
            max_timestamp_ms=kept_header.max_timestamp,
            last_offset_delta=header.last_offset_delta,
            delete_horizon_ms=horizon_ms,
        )
