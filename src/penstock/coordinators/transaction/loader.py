"""Decodes the records of `__transaction_state` from log bytes. No I/O.

Reading never fails, as in `runtime.record_batches`: a record that cannot be decoded is reported and
skipped, so that the record before it stays in effect.
"""

from collections.abc import Iterator

from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import find_decoded, iter_sound_batches
from penstock.coordinators.transaction.records import TransactionRecord, decode_record
from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import iter_records


class TransactionsLoader:
    """A `runtime.loader.Reader`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, data: bytes) -> Iterator[TransactionRecord | None]:
        for sound in iter_sound_batches(data, self._report):
            if sound is None or sound[1].is_control:
                yield None
            else:
                yield from self._read_batch(sound[0])

    def rest(self) -> Iterator[TransactionRecord | None]:
        return iter(())

    def _read_batch(self, batch: memoryview) -> Iterator[TransactionRecord | None]:
        try:
            for record in iter_records(batch):
                yield find_decoded(record, decode_record, self._report)
        except CorruptBatch as error:
            self._report(f"skipping the rest of a batch: {error}")
