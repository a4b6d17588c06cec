"""A topic with one fault in each partition except the first.

The faults are planted into the files of a stopped broker, because no broker would write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.conftest import BROKER_CONFIG
from tests.spark.topics import ask, create_topic

import penstock
from penstock.client.cluster import ClusterClient
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import iter_headers, stamp_offset_and_epoch
from penstock.protocol.records import Record, build_batch

TOPIC = "planted"
BATCHES, BATCH_RECORDS = 40, 50
RECORDS = BATCHES * BATCH_RECORDS
# What an audit reports for each partition: (kind, first offset, last offset). The duplicates of the
# last one show only in the records' content.
EXPECTED = {
    0: [],
    1: [("missing", 1_000, 1_049)],
    2: [("order", 1_000, 1_049)],
    3: [("crc", 1_000, 1_049)],
    4: [("duplicate", 1_050, 1_099)],
    5: [("order", 1_050, 1_099)],
    6: [("duplicate", 1_050, 1_099)],
}
Edit = Callable[[list[bytearray]], None]


def _remove(batches: list[bytearray]) -> None:
    del batches[20]


def _swap(batches: list[bytearray]) -> None:
    batches[20], batches[21] = batches[21], batches[20]


def _flip_bit(batches: list[bytearray]) -> None:
    batches[20][100] ^= 0x04


def _write_twice(batches: list[bytearray]) -> None:
    """Overwrites the next batch with a copy, so that offsets remain consecutive."""
    batches[21] = _moved(batches[20], batches[21])


def _swap_content(batches: list[bytearray]) -> None:
    batches[20:22] = _moved(batches[21], batches[20]), _moved(batches[20], batches[21])


EDITS: dict[int, Edit] = {
    1: _remove,
    2: _swap,
    3: _flip_bit,
    4: _write_twice,
    5: _swap_content,
    6: _write_twice,
}
# The sequences of batch 21 are missing where a copy of batch 20 replaces it.
ALSO_EXPECTED = {4: [("missing", 1_100, 1_100)]}


def _moved(batch: bytearray, to: bytearray) -> bytearray:
    copy = bytearray(batch)
    stamp_offset_and_epoch(copy, 0, int.from_bytes(to[:8], "big"), 0)
    return copy


@contextmanager
def broker_with_faults(data: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(data=data, config=BROKER_CONFIG) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, partitions=len(EDITS) + 1)
        _fill(broker.bootstrap_servers)
    for partition, edit in EDITS.items():
        _edit(data / f"{TOPIC}-{partition}" / f"{0:020}.log", edit)
    with penstock.Broker(data=data, config=BROKER_CONFIG) as broker:
        yield broker


def _fill(servers: str) -> None:
    async def fill(client: ClusterClient) -> None:
        for partition in range(len(EDITS) + 1):
            for number in range(BATCHES):
                batch = _batch(partition, number)
                await client.produce(TopicPartition(TOPIC, partition), batch)

    ask(servers, fill)


def _batch(partition: int, number: int) -> bytearray:
    """A batch of an idempotent producer, except in the last partition."""
    first = number * BATCH_RECORDS
    has_producer = partition != len(EDITS)
    records = [
        Record(index, 1_700_000_000_000 + first, b"k%d" % (index % 7), b"v%d" % (first + index))
        for index in range(BATCH_RECORDS)
    ]
    return build_batch(
        records,
        producer_id=500 + partition if has_producer else -1,
        producer_epoch=0 if has_producer else -1,
        base_sequence=first if has_producer else -1,
    )


def _edit(path: Path, edit: Edit) -> None:
    content = path.read_bytes()
    batches = [
        bytearray(content[position : position + header.size])
        for position, header in iter_headers(content)
    ]
    assert len(batches) == BATCHES
    edit(batches)
    path.write_bytes(b"".join(batches))
