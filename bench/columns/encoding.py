"""Arrow rows to record batches of 12 partitions, and keys to partitions."""

from typing import Any

import pyarrow as pa
from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]

from bench.columns.rates import Implementation, compare
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch
from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.codec.encode import Encoder
from penstock.spark.sink.partitioning import partition_rows

CALL_ROWS = 10_000  # rows per call from Spark
CALLS = 10
PARTITIONS = 12
BATCH_BYTES = 512 * 1024


def measure_all() -> list[dict[str, Any]]:
    return [measure(codec) for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)]


def measure(codec: Codec) -> dict[str, Any]:
    keys, values = _columns()
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    records = [Record(offset, 1, *pair) for offset, pair in enumerate(pairs)]
    measured = compare(
        "compiled",
        compiled=Implementation(
            CALLS * CALL_ROWS, lambda: _encode(keys, values, codec, BulkPath.COMPILED, CALLS)
        ),
        plain=Implementation(CALL_ROWS, lambda: _encode(keys, values, codec, BulkPath.PLAIN, 1)),
        build_batch=Implementation(CALL_ROWS, lambda: build_batch(records, codec=codec)),
    )
    return {"codec": codec.name.lower(), "partitions": PARTITIONS, **measured}


def measure_partitioning() -> dict[str, Any]:
    keys, _ = _columns()
    contents = keys.to_pylist()
    return compare(
        "compiled",
        compiled=Implementation(CALL_ROWS, lambda: _partition(keys, BulkPath.COMPILED)),
        plain=Implementation(CALL_ROWS, lambda: _partition(keys, BulkPath.PLAIN)),
        aiokafka=Implementation(CALL_ROWS, lambda: [murmur2(key) % PARTITIONS for key in contents]),
    )


def _columns() -> tuple[pa.Array, pa.Array]:
    keys = [b"%08d" % (number * 7919 % 10**8) for number in range(CALL_ROWS)]
    values = [(b'{"user": %d}' % number).ljust(100, b".") for number in range(CALL_ROWS)]
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def _encode(keys: pa.Array, values: pa.Array, codec: Codec, path: BulkPath, calls: int) -> None:
    encoder = Encoder(codec=codec, batch_bytes=BATCH_BYTES, timestamp_ms=lambda: 1, path=path)
    written = 0
    for call in range(calls):
        chosen = partition_rows(keys, CALL_ROWS, PARTITIONS, sticky_start=call, path=path)
        written += sum(batch.records for batch in encoder.add(chosen, keys, values, None))
    written += sum(batch.records for batch in encoder.flush())
    assert written == calls * CALL_ROWS


def _partition(keys: pa.Array, path: BulkPath) -> None:
    partition_rows(keys, CALL_ROWS, PARTITIONS, sticky_start=0, path=path)
