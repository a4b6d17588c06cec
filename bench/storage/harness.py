"""Fixtures: an engine, a log and batches to fill it with."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from tempfile import TemporaryDirectory
from uuid import UUID

from bench.measure import data_home
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.batch import BASE_TIMESTAMP_POSITION, CRC_POSITION, compute_crc
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, LogAppendInfo
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine

_TIMES = Struct(">qq")
_CRC = Struct(">I")
NOW_MS = 1_800_000_000_000
EPOCH = LeaderEpoch(0)
PARTITION = TopicPartition("bench", 0)


@contextmanager
def data_directory() -> Iterator[str]:
    with TemporaryDirectory(dir=data_home(), prefix="bench-") as path:
        yield path


def open_engine(path: str, config: LogConfig | None = None) -> SegmentedEngine:
    topic = LogConfig() if config is None else config
    engine = SegmentedEngine(StorageConfig(log_dirs=(path,)), config_of=lambda _: topic)
    engine.recover(lambda *, done, total: None, NOW_MS)
    return engine


def create_log(engine: SegmentedEngine, config: LogConfig, partition: int = 0) -> SegmentedLog:
    name = TopicPartition(PARTITION.topic, partition)
    log = engine.create(name, TopicId(UUID(int=1)), config, NOW_MS)
    assert isinstance(log, SegmentedLog)
    return log


def make_batch(batch_bytes: int, record_bytes: int = 1000, seed: int = 7) -> bytearray:
    """A batch of about `batch_bytes`, of random values that do not compress."""
    source = random.Random(seed)
    count = max(1, (batch_bytes - 61) // (record_bytes + 10))
    return build_batch(
        [Record(i, NOW_MS, None, source.randbytes(record_bytes), ()) for i in range(count)]
    )


def stamp_time(batch: bytearray, timestamp_ms: int) -> None:
    """Gives all records the same timestamp, like a client that sends them together."""
    _TIMES.pack_into(batch, BASE_TIMESTAMP_POSITION, timestamp_ms, timestamp_ms)
    _CRC.pack_into(batch, CRC_POSITION, compute_crc(batch))


def append(engine: SegmentedEngine, log: SegmentedLog, batch: bytearray | memoryview) -> None:
    (result,) = engine.append([AppendItem(log, memoryview(batch), EPOCH)], NOW_MS)
    assert isinstance(result, LogAppendInfo), result


def abandon(engine: SegmentedEngine) -> None:
    """Closes the engine as a crash does: no flush, no clean-shutdown marker."""
    engine.abandon()
