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
from penstock.spark.source.plan import OffsetRange, share_tasks
from penstock.spark.warm_process import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.codec.decode import Decoder


# Ranges of together so many records share a task. A task costs 10 to 20 ms, as much as reading some
# thousand records; but what is done with a record may take long, and only tasks run side by side.
_SMALL_RECORDS = 1_000
_MAX_RANGES = 16  # each has a request in flight


class ReadRange(InputPartition):
    """The input of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def read(self, settings: "ReadSettings") -> "Iterator[pa.RecordBatch]":
        return read_range(self.wanted, settings)


class ReadRanges(InputPartition):
    """The input of one task that reads several small ranges, one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def read(self, settings: "ReadSettings") -> "Iterator[pa.RecordBatch]":
        return read_ranges(self.ranges, settings)


def plan_small_tasks(
    ranges: Sequence[OffsetRange], *, max_records: int | None
) -> list[InputPartition]:
    """Small ranges share a task, because a task costs more than reading them. `max_records`: the
    user's limit for one."""
    shared = share_tasks(
        ranges,
        max_records=min(max_records or _SMALL_RECORDS, _SMALL_RECORDS),
        max_ranges=_MAX_RANGES,
    )
    return [ReadRange(task[0]) if len(task) == 1 else ReadRanges(task) for task in shared]


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
    return read_ranges((wanted,), settings)


def read_ranges(
    ranges: Sequence[OffsetRange], settings: ReadSettings
) -> "Iterator[pa.RecordBatch]":
    """Fetches all ranges at the same time, and returns their rows one range after the other."""
    client = shared_client(settings.client)
    fetches = [FetchAhead(client, wanted, settings.fetch) for wanted in ranges]
    try:
        for fetch in fetches:
            fetch.start()
        for wanted, fetch in zip(ranges, fetches, strict=True):
            yield from _read(wanted, fetch, settings)
    finally:
        for fetch in fetches:
            fetch.cancel()
    settle()


def _read(
    wanted: OffsetRange, fetch: FetchAhead, settings: ReadSettings
) -> "Iterator[pa.RecordBatch]":
    from penstock.spark.codec.decode import Decoder  # imports pyarrow, which planning does not need

    is_committed = settings.fetch.isolation is IsolationLevel.READ_COMMITTED
    decoder = Decoder(wanted.tp, settings.columns, read_committed=is_committed)
    try:
        for piece in fetch:
            yield from _decode(decoder, piece)
    except (ClientError, CorruptBatch) as error:
        raise SparkSourceError(f"cannot read {wanted.tp}: {error}") from error


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
