"""Decodes the record batches of one partition's fetch response to Arrow.

Knows no connection and no Spark. Invariant: each row is returned once and in offset order; invalid
bytes raise CorruptBatch and use bounded memory.
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

# A compressed fetch of a few MiB can hold a thousand times that; the rest is fetched again.
MAX_DECODED_BYTES = 512 * 1024 * 1024


class DecodedFetch(NamedTuple):
    batches: list[pa.RecordBatch]  # of `arrow_schema(columns)`; may be empty
    next_offset: int  # the first offset not yet decoded


class Decoder:
    """Decodes one partition. `path` None chooses by what is installed and how many bytes were
    decoded. After `max_bytes` of decoded data, the rest of a fetch is left for the next one."""

    def __init__(
        self,
        tp: TopicPartition,
        columns: Sequence[str],
        *,
        read_committed: bool,
        check_crc: bool = True,
        path: BulkPath | None = None,
        max_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        self._tp = tp
        self._schema = arrow_schema(columns)
        self._columns = [name for name in columns if name not in CONSTANT_COLUMNS]
        self._constants = _Constants(tp)
        self._read_committed = read_committed
        self._check_crc = check_crc
        self._path = path
        self._max_bytes = max_bytes

    def decode(
        self,
        batches: memoryview,
        *,
        start: int,
        end: int,
        aborted: Sequence[AbortedTransactionStart] = (),
    ) -> DecodedFetch:
        """The rows with start <= offset < end, as far as whole batches go. Omits control batches,
        and aborted data with read_committed; gaps between offsets are normal."""
        try:
            return self._decode(batches, OffsetBounds(start, end), aborted)
        except CorruptAt as error:
            raise CorruptBatch(
                f"cannot read {self._tp} at offset {error.offset}: {error.reason}. Retry; if the "
                "error persists, elect another leader, or start after the corrupt batch"
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
        batches: list[pa.RecordBatch] = []
        decoded_bytes = 0
        for chunk in chunks:
            batches.append(self._record_batch(chunk))
            decoded_bytes += batches[-1].nbytes
            if decoded_bytes >= self._max_bytes:
                return DecodedFetch(batches, chunk.last_offset + 1)
        return DecodedFetch(batches, next_offset)

    def _record_batch(self, chunk: RowChunk) -> pa.RecordBatch:
        arrays = [
            self._constants.array(name, chunk) if name in CONSTANT_COLUMNS else chunk.columns[name]
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Constants:
    """Columns with a single value per chunk, built once and sliced for each chunk."""

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
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
                return self._tp.topic
            case "partition":
                return self._tp.partition
            case _:
                return int(chunk.is_append_time)
