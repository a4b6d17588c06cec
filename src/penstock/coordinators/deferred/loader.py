"""Decodes the records of `__penstock_deferred` from log bytes, each with its offset. No I/O.

Reading never fails, as in `runtime.record_batches`: a record that cannot be decoded is reported and
skipped, so that the record before it stays in effect.
"""

from collections.abc import Iterator

from penstock.coordinators.deferred.records import DeferredRecord, decode_record
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import find_decoded, iter_sound_batches
from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import iter_records

Entry = tuple[DeferredRecord, int]


class DeferredLoader:
    """A `runtime.loader.Reader`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, data: bytes) -> Iterator[Entry | None]:
        for sound in iter_sound_batches(data, self._report):
            if sound is None or sound[1].is_control:
                yield None
            else:
                yield from self._read_batch(sound[0])

    def rest(self) -> Iterator[Entry | None]:
        return iter(())

    def _read_batch(self, batch: memoryview) -> Iterator[Entry | None]:
        try:
            for record in iter_records(batch):
                decoded = find_decoded(record, decode_record, self._report)
                yield None if decoded is None else (decoded, record.offset)
        except CorruptBatch as error:
            self._report(f"skipping the rest of a batch: {error}")
