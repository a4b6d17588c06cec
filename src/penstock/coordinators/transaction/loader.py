"""Records of transactions back from the log's bytes: of each id the last one alone. No I/O.

Reading never fails, as `state_topics.batches` says: a record that cannot be read leaves the one
before it standing.
"""

from collections.abc import Iterator

from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import find_decoded, iter_sound_batches
from penstock.coordinators.transaction.records import TransactionRecord, decode_record
from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import iter_records


class TransactionsLoader:
    """A `state_topics.loading.Reader`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def read(self, data: bytes) -> Iterator[TransactionRecord | None]:
        for found in iter_sound_batches(data, self._report):
            if found is None or found[1].is_control:
                yield None
            else:
                yield from self._read_batch(found[0])

    def rest(self) -> Iterator[TransactionRecord | None]:
        return iter(())

    def _read_batch(self, batch: memoryview) -> Iterator[TransactionRecord | None]:
        try:
            for record in iter_records(batch):
                yield find_decoded(record, decode_record, self._report)
        except CorruptBatch as error:
            self._report(f"a batch is passed over from there: {error}")
