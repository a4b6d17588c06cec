"""Record batches of one partition into Arrow: all that a reader of Spark's needs of a fetch.

Knows no connection and no Spark. Invariant: a row is given once and in the order of offsets; bytes
that are no sound batch raise CorruptBatch, and cost no more than bounded memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.client.data_calls import AbortedTransactionStart
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import CorruptBatch
from penstock.spark.codec.bulk_path import BulkPath, choose_decoder
from penstock.spark.codec.row_columns import (
    COLUMN_TYPES,
    COLUMNS,
    CONSTANT_COLUMNS,
    RowChunk,
    arrow_schema,
)
from penstock.spark.codec.visible_batches import CorruptAt, OffsetBounds, visible_batches

__all__ = ["COLUMNS", "DecodedFetch", "Decoder", "arrow_schema"]

# A fetch of a few MiB can hold a thousand times that, compressed: the rest is fetched again.
MAX_DECODED_BYTES = 512 * 1024 * 1024


class DecodedFetch(NamedTuple):
    batches: list[pa.RecordBatch]  # of `arrow_schema(columns)`; may be empty
    next_offset: int  # first offset not yet seen: fetch from here next


class Decoder:
    """For one partition. `path` None chooses by what is installed and how much there was to do.
    Once `most_bytes` are decoded, the rest of a fetch is left for the next one."""

    def __init__(
        self,
        partition: TopicPartition,
        columns: Sequence[str],
        *,
        read_committed: bool,
        check_crc: bool = True,
        path: BulkPath | None = None,
        most_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        self._partition = partition
        self._schema = arrow_schema(columns)
        self._columns = [name for name in columns if name not in CONSTANT_COLUMNS]
        self._constants = _Constants(partition)
        self._read_committed = read_committed
        self._check_crc = check_crc
        self._path = path
        self._most_bytes = most_bytes

    def decode(
        self,
        batches: memoryview,
        *,
        start: int,
        end: int,
        aborted: Sequence[AbortedTransactionStart] = (),
    ) -> DecodedFetch:
        """Rows of start <= offset < end, as far as whole batches go. Control batches are left out,
        and aborted data if only committed data is read; gaps between offsets are normal."""
        try:
            return self._decode(batches, OffsetBounds(start, end), aborted)
        except CorruptAt as error:
            raise CorruptBatch(
                f"{self._partition} cannot be read at offset {error.offset}: {error.reason}. Try "
                "again; if it stays, let another replica lead, or start after the damaged batch"
            ) from None

    def _decode(
        self, fetched: memoryview, wanted: OffsetBounds, aborted: Sequence[AbortedTransactionStart]
    ) -> DecodedFetch:
        visible = visible_batches(
            fetched,
            wanted,
            aborted=aborted if self._read_committed else None,
            check_crc=self._check_crc,
        )
        decode_batches = choose_decoder(self._path, len(fetched))
        chunks = decode_batches(fetched, visible.batches, wanted, self._columns)
        return self._collect(chunks, visible.next_offset)

    def _collect(self, chunks: Iterator[RowChunk], next_offset: int) -> DecodedFetch:
        made: list[pa.RecordBatch] = []
        decoded_bytes = 0
        for chunk in chunks:
            made.append(self._record_batch(chunk))
            decoded_bytes += made[-1].nbytes
            if decoded_bytes >= self._most_bytes:
                return DecodedFetch(made, chunk.last_offset + 1)
        return DecodedFetch(made, next_offset)

    def _record_batch(self, chunk: RowChunk) -> pa.RecordBatch:
        arrays = [
            self._constants.array(name, chunk) if name in CONSTANT_COLUMNS else chunk.columns[name]
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Constants:
    """Columns that have one value in a chunk, built once and sliced for each."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._built: dict[tuple[str, int | str], pa.Array] = {}

    def array(self, name: str, chunk: RowChunk) -> pa.Array:
        value = self._value(name, chunk)
        built = self._built.get((name, value))
        if built is None or len(built) < chunk.rows:
            built = pa.repeat(pa.scalar(value, COLUMN_TYPES[name]), chunk.rows)
            self._built[name, value] = built
        return built.slice(0, chunk.rows)

    def _value(self, name: str, chunk: RowChunk) -> int | str:
        match name:
            case "topic":
                return self._partition.topic
            case "partition":
                return self._partition.partition
            case _:
                return int(chunk.is_append_time)
