"""Checks batches against producer state before an append, and applies them to it afterwards.

Works on a ProducerStateManager and owns nothing. Live appends, recovery and replay apply batches in
the same way.
"""

from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, CorruptBatch
from penstock.protocol.control import EndMarker, read_end_marker
from penstock.storage.errors import CorruptRecords
from penstock.storage.log_segments import LogSegments
from penstock.storage.producer_snapshots import ProducerSnapshots
from penstock.storage.producer_state_manager import BatchMetadata, ProducerStateManager
from penstock.storage.transaction_index import AbortedTxn


def check_batch(
    producers: ProducerStateManager, header: BatchHeader, batch: memoryview, tp: object
) -> BatchMetadata | None:
    """The stored batch if this is a duplicate; None if it may be appended; raises otherwise."""
    if header.attributes & CONTROL and header.is_marker:
        marker = get_marker(batch, tp)
        if marker is not None:
            producers.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch
            )
        return None
    last_sequence = header.last_sequence
    stored = producers.find_duplicate(
        header.producer_id, header.producer_epoch, header.base_sequence, last_sequence
    )
    if stored is None:
        producers.check(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            last_sequence=last_sequence,
            transactional=header.attributes & TRANSACTIONAL != 0,
        )
    return stored


def get_marker(batch: memoryview, tp: object) -> EndMarker | None:
    try:
        return read_end_marker(batch)
    except CorruptBatch as error:
        raise CorruptRecords(f"{tp}: {error.reason}; not a marker") from error


def apply_batch(
    producers: ProducerStateManager, header: BatchHeader, batch: memoryview, now_ms: int
) -> AbortedTxn | None:
    """Apply a stored batch that has a producer id; returns the index entry of an aborted txn."""
    if header.attributes & CONTROL and header.is_marker:
        return _apply_marker(producers, header, batch, now_ms)
    producers.apply(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.attributes & TRANSACTIONAL != 0,
        now_ms,
    )
    return None


def _apply_marker(
    producers: ProducerStateManager, header: BatchHeader, batch: memoryview, now_ms: int
) -> AbortedTxn | None:
    try:
        marker = read_end_marker(batch)
    except CorruptBatch:
        return None  # such appends are rejected; one that is in the log has no effect
    if marker is None:
        return None
    completed = producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        marker.commit,
        header.last_offset,
        header.max_timestamp,
        now_ms,
    )
    if completed is None or not completed.aborted:
        return None
    return AbortedTxn(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.last_stable_offset_for(completed),
    )


def replay(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: LogSegments,
    end_offset: int,
    now_ms: int,
) -> None:
    """Rebuild the state at `end_offset`: from the newest snapshot, then batch by batch."""
    snapshot = snapshots.find_latest(end_offset)
    offset, entries = snapshot if snapshot is not None else (0, [])
    producers.load(entries, offset, now_ms)
    for segment in segments.starting_from(offset):
        batch = segment.find_batch(offset)
        if batch is None:
            continue
        for _, header, content in segment.scan(check_crc=False, start=batch.position):
            if header.producer_id >= 0:
                apply_batch(producers, header, content, now_ms)
