"""Decodes the records of `__penstock_deferred` from log bytes, each with its offset. No I/O.

Reading never fails, as in `runtime.record_batches`: a record that cannot be decoded is reported and
skipped, so that the record before it stays in effect.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.coordinators.deferred.records import DeferredRecord, decode_record
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import find_decoded, iter_sound_batches
from penstock.model.ids import NO_PRODUCER_ID
from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import iter_records


class LoadedRecord(NamedTuple):
    record: DeferredRecord
    offset: int
    producer_id: int  # whose transaction it belongs to


class LoadedMarker(NamedTuple):
    producer_id: int
    commit: bool
    ended_ms: int


Entry = LoadedRecord | LoadedMarker


class DeferredLoader:
    """A `runtime.loader.Reader`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, data: bytes) -> Iterator[Entry | None]:
        for sound in iter_sound_batches(data, self._report):
            if sound is None:
                yield None
            else:
                yield from self._read_batch(*sound)

    def rest(self) -> Iterator[Entry | None]:
        return iter(())

    def _read_batch(self, batch: memoryview, header: BatchHeader) -> Iterator[Entry | None]:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        try:
            if header.is_control:
                marker = read_end_marker(batch)
                if marker is not None:
                    yield LoadedMarker(producer_id, marker.commit, header.max_timestamp)
                return
            for record in iter_records(batch):
                decoded = find_decoded(record, decode_record, self._report)
                yield None if decoded is None else LoadedRecord(decoded, record.offset, producer_id)
        except CorruptBatch as error:
            self._report(f"skipping the rest of a batch: {error}")
