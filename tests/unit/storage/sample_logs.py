"""Data directories as a broker leaves them, with every kind of content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import Disk
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.segmented_engine import SegmentedEngine

NOW_MS = 1_800_000_000_000
TOPIC_ID = TopicId(UUID(int=7))
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_ms=2**60, retention_ms=-1)


def open_engine(
    directory: Path | str, config: LogConfig = SMALL, disk: Disk | None = None
) -> SegmentedEngine:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(str(directory),)), config_of=lambda _: config, disk=disk
    )
    engine.recover(lambda *, done, total: None, NOW_MS)
    return engine


class Writer:
    """Appends to one log; every record is replicated at once."""

    def __init__(self, engine: SegmentedEngine, name: str = "t-0") -> None:
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        logs = {log.tp: log for log in engine._logs.values()}
        self.engine = engine
        self.log: PartitionLog = (
            logs[partition]
            if partition in logs
            else engine.create(partition, TOPIC_ID, engine._config_of(topic), NOW_MS)
        )
        self.epoch = max(0, self.log.latest_epoch)
        self._sequences: dict[int, int] = {}

    def append(self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        item = AppendItem(self.log, memoryview(batch), LeaderEpoch(self.epoch), origin)
        (result,) = self.engine.append([item], NOW_MS)
        assert not isinstance(result, StorageError), result
        self.log.advance_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def records(
        self,
        count: int = 3,
        *,
        codec: Codec = Codec.NONE,
        timestamp_ms: int | None = None,
        value: bytes = b"some value",
    ) -> int:
        first_ms = NOW_MS + self.log.log_end_offset if timestamp_ms is None else timestamp_ms
        records = [
            Record(i, first_ms + i, b"key-%d" % i, value, (("header", b"x"),)) for i in range(count)
        ]
        return self.append(build_batch(records, codec=codec))

    def transactional(self, producer_id: int, count: int = 2) -> int:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        records = [Record(i, NOW_MS, b"k", b"in a transaction") for i in range(count)]
        return self.append(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def end(self, producer_id: int, *, commit: bool) -> int:
        marker = build_end_marker_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW_MS,
        )
        return self.append(marker, AppendOrigin.COORDINATOR)


def fill(writer: Writer) -> None:
    """Append batches of all codecs, in about 8 segments and three epochs.

    Transactions overlap and span segments.
    """
    for turn in range(6):
        for codec in Codec:
            writer.records(codec=codec)
        writer.transactional(1)
        writer.transactional(2, count=4)
        writer.records(value=b"v" * 300)
        writer.end(1, commit=turn % 2 == 0)
        writer.transactional(2)
        if turn % 3 == 1:
            writer.epoch += 1
        writer.end(2, commit=turn % 2 == 1)
    writer.transactional(3)  # stays open


@contextmanager
def writing(
    directory: Path | str, config: LogConfig = SMALL, disk: Disk | None = None
) -> Iterator[Writer]:
    """Yield a writer of a log that is closed cleanly afterwards."""
    engine = open_engine(directory, config, disk)
    yield Writer(engine)
    engine.close()


def write_sample(
    directory: Path | str,
    disk: Disk | None = None,
    *,
    then: Callable[[Writer], None] = lambda writer: None,
) -> None:
    with writing(directory, disk=disk) as writer:
        fill(writer)
        then(writer)
