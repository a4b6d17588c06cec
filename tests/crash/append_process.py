"""A process to be killed: appends to a few logs, flushes by group commit with threads, and prints
each acknowledgement: `partition end_offset`, a line each.

    python -m tests.crash.append_process DIRECTORY
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from tests.crash.harness import NOW_MS, TOPIC_ID, progress

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, LogAppendInfo, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine

PARTITIONS = [TopicPartition("live", number) for number in range(3)]
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, retention_ms=-1)
Work = Callable[[], None]


def value_at(partition: TopicPartition, offset: int) -> bytes:
    """The value of the record at this offset, so that readers can check it."""
    return b"%s at %d " % (str(partition).encode(), offset) * 6


def open_engine(
    directory: str, **options: object
) -> tuple[SegmentedEngine, dict[TopicPartition, PartitionLog]]:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(directory,)),
        config_of=lambda topic: CONFIG,
        **options,  # type: ignore[arg-type]  # passed through
    )
    return engine, dict(engine.recover(progress, NOW_MS))


def main(directory: str) -> None:
    inbox: SimpleQueue[Work] = SimpleQueue()
    with FlushThreads(3) as background:
        engine, logs = open_engine(directory, background=background, post=inbox.put)
        for partition in PARTITIONS:
            if partition not in logs:
                logs[partition] = engine.create(partition, TOPIC_ID, CONFIG, NOW_MS)
        for log in logs.values():
            _append(engine, log)
        while True:
            inbox.get()()


def _append(engine: SegmentedEngine, log: PartitionLog) -> None:
    """Appends two batches; the next ones follow when these are durable."""
    for _ in range(2):
        offset = log.log_end_offset
        records = [
            Record(index, NOW_MS, None, value_at(log.tp, offset + index)) for index in range(3)
        ]
        item = AppendItem(log, memoryview(build_batch(records)), LeaderEpoch(0))
        (result,) = engine.append([item], NOW_MS)
        assert isinstance(result, LogAppendInfo), result
    engine.flush(log, log.log_end_offset, partial(_acknowledge, engine, log, log.log_end_offset))


def _acknowledge(
    engine: SegmentedEngine, log: PartitionLog, upto: Offset, error: StorageError | None
) -> None:
    assert error is None, error
    os.write(1, b"%d %d\n" % (log.tp.partition, upto))
    log.advance_high_watermark(upto)
    _append(engine, log)


if __name__ == "__main__":
    main(sys.argv[1])
