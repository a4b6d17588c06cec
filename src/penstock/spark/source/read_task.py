"""What a task does on an executor: fetch a range of one partition, and hand it over as Arrow.

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
from penstock.spark.source.fetch_ahead import FetchAhead, FetchRules, Piece
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.codec.decode import Decoder
    from penstock.spark.tables.history import History
    from penstock.spark.tables.history_task import PastFiles


class ReadRange(InputPartition):
    """The work of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def read(self, settings: "ReadSettings") -> "Iterator[pa.RecordBatch]":
        return read_range(self.wanted, settings)


class ReadPast(ReadRange):
    """The work of one task that reads a table instead of the topic."""

    def __init__(self, wanted: OffsetRange, past: "PastFiles") -> None:
        super().__init__(wanted)
        self.past = past

    def read(self, settings: "ReadSettings") -> "Iterator[pa.RecordBatch]":
        from penstock.spark.tables.history_task import read_past

        return read_past(self.wanted, self.past, settings.columns)


def plan_tasks(ranges: Sequence[OffsetRange], history: "History | None") -> list[InputPartition]:
    """What tables hold is read from them, the rest from the topic."""
    tasks: list[InputPartition] = []
    if history is not None:
        history.look(ranges)
    for each in ranges:
        past, live = (None, each) if history is None else history.cut(each)
        if past is not None and history is not None:
            tasks.append(ReadPast(past, history.files(past)))
        if live is not None:
            tasks.append(ReadRange(live))
    return tasks


class ReadSettings(NamedTuple):
    """All that a task needs to know besides its range; sent to every executor."""

    client: ClientSettings
    columns: tuple[str, ...]
    rules: FetchRules


def read_settings(options: SourceOptions, columns: tuple[str, ...]) -> ReadSettings:
    rules = FetchRules(
        isolation=options.isolation,
        fails_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
        fetch_bytes=options.fetch_bytes,
    )
    return ReadSettings(options.client, columns, rules)


def read_range(wanted: OffsetRange, settings: ReadSettings) -> "Iterator[pa.RecordBatch]":
    from penstock.spark.codec.decode import Decoder  # brings pyarrow, which planning does not need

    client = shared_client(settings.client)
    is_committed = settings.rules.isolation is IsolationLevel.READ_COMMITTED
    decoder = Decoder(wanted.partition, settings.columns, read_committed=is_committed)
    try:
        for piece in FetchAhead(client, wanted, settings.rules):
            yield from _decode(decoder, piece)
    except (ClientError, CorruptBatch) as error:
        raise SparkSourceError(f"{wanted.partition} cannot be read: {error}") from error


def _decode(decoder: "Decoder", piece: Piece) -> "Iterator[pa.RecordBatch]":
    """In several steps where a piece holds far more than its compressed size lets expect."""
    start, fetched = piece.start, piece.fetched
    while start < piece.end:
        decoded = decoder.decode(
            fetched.batches, start=start, end=piece.end, aborted=fetched.aborted
        )
        yield from decoded.batches
        assert decoded.next_offset > start, f"no way forward from {start} in {fetched.partition}"
        start = decoded.next_offset
