"""One task of the source, on an executor: fetches an offset range and returns it as Arrow batches.

Imported by Spark's workers, which keep connections and compiled code for their next task.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from penstock.client.data_calls import IsolationLevel
from penstock.client.errors import ClientError
from penstock.protocol.batch import CorruptBatch
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.source.fetch_ahead import FetchAhead, FetchConfig, FetchedPiece
from penstock.spark.source.history import History
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import OffsetRange
from penstock.spark.warm_process import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.codec.decode import Decoder


class ReadRange(InputPartition):
    """The input of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def read(self, settings: "ReadSettings") -> "Iterator[pa.RecordBatch]":
        return read_range(self.wanted, settings)


def plan_tasks(ranges: Sequence[OffsetRange], history: History | None) -> list[InputPartition]:
    """With a history, ranges that its tables hold are read from them, the rest from the topic."""
    return (
        [ReadRange(wanted) for wanted in ranges] if history is None else history.plan_tasks(ranges)
    )


class ReadSettings(NamedTuple):
    """The inputs of a task besides its range; sent to every executor."""

    client: ClientSettings
    columns: tuple[str, ...]
    fetch: FetchConfig


def read_settings(options: SourceOptions, columns: tuple[str, ...]) -> ReadSettings:
    fetch = FetchConfig(
        isolation=options.isolation,
        fails_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
        fetch_bytes=options.fetch_bytes,
    )
    return ReadSettings(options.client, columns, fetch)


def read_range(wanted: OffsetRange, settings: ReadSettings) -> "Iterator[pa.RecordBatch]":
    from penstock.spark.codec.decode import Decoder  # imports pyarrow, which planning does not need

    client = shared_client(settings.client)
    is_committed = settings.fetch.isolation is IsolationLevel.READ_COMMITTED
    decoder = Decoder(wanted.tp, settings.columns, read_committed=is_committed)
    try:
        for piece in FetchAhead(client, wanted, settings.fetch):
            yield from _decode(decoder, piece)
    except (ClientError, CorruptBatch) as error:
        raise SparkSourceError(f"cannot read {wanted.tp}: {error}") from error
    settle()


def _decode(decoder: "Decoder", piece: FetchedPiece) -> "Iterator[pa.RecordBatch]":
    """Decode in several steps if a piece is far larger than its compressed size suggests."""
    start, fetched = piece.start, piece.fetched
    while start < piece.end:
        decoded = decoder.decode(
            fetched.batches, start=start, end=piece.end, aborted=fetched.aborted
        )
        yield from decoded.batches
        assert decoded.next_offset > start, f"no progress at offset {start} of {fetched.tp}"
        start = decoded.next_offset
