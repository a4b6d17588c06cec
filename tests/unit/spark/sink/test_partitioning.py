"""Partitions of rows: by key like two other producers, and evenly without a key."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2  # type: ignore[import-untyped]
from confluent_kafka import murmur2 as librdkafka_murmur2

from penstock.spark.codec.bulk_path import BulkPath
from penstock.spark.sink.partitioning import STICKY_ROWS, partition_rows

BOTH = pytest.mark.parametrize("path", BulkPath)


def keys_of_every_length() -> list[bytes]:
    rng = random.Random(20_261_116)
    keys = [rng.randbytes(length) for length in range(70) for _ in range(20)]
    return [*keys, b"\xff" * 33, b"\x80" * 7, bytes(1_000)]


@BOTH
@pytest.mark.parametrize("partitions", [1, 3, 12, 1_000])
def test_keys_go_to_the_same_partition_as_with_other_producers(
    path: BulkPath, partitions: int
) -> None:
    keys = keys_of_every_length()
    chosen = partition_rows(
        pa.array(keys, pa.binary()), len(keys), partitions, sticky_start=0, path=path
    )
    assert chosen.tolist() == [(aiokafka_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert chosen.tolist() == [librdkafka_murmur2(key, partitions) for key in keys]
    assert chosen.dtype == np.int32


@BOTH
def test_strings_are_hashed_by_their_bytes(path: BulkPath) -> None:
    texts = ["", "a", "überall", "key-17"]
    encoded = [text.encode() for text in texts]
    by_text = partition_rows(pa.array(texts), 4, 50, sticky_start=0, path=path)
    by_bytes = partition_rows(pa.array(encoded), 4, 50, sticky_start=0, path=path)
    assert by_text.tolist() == by_bytes.tolist()


@pytest.mark.parametrize("keys", [None, pa.nulls(STICKY_ROWS * 7, pa.binary())])
def test_rows_without_a_key_go_to_each_partition_in_runs(keys: pa.Array | None) -> None:
    chosen = partition_rows(keys, STICKY_ROWS * 7, 7, sticky_start=5)
    assert Counter(chosen.tolist()) == dict.fromkeys(range(7), STICKY_ROWS)
    assert chosen[0] == 5
    assert np.count_nonzero(np.diff(chosen)) == 6


@BOTH
def test_null_keys_do_not_affect_other_keys(path: BulkPath) -> None:
    keys = [b"a", None, b"b", None, b"", b"c"]
    chosen = partition_rows(pa.array(keys, pa.binary()), 6, 9, sticky_start=4, path=path)
    alone = [
        partition_rows(pa.array([key], pa.binary()), 1, 9, sticky_start=4, path=path)[0]
        for key in keys
    ]
    assert chosen.tolist() == alone
    assert chosen[1] == chosen[3] == 4
