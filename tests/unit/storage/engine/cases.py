"""A log of any engine, and batches for it, shared by the contract suite."""

import os
from typing import Any
from uuid import UUID

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, compute_crc, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, Engine, LogAppendInfo, PartitionLog
from penstock.storage.errors import StorageError

PARTITION = TopicPartition("orders", 3)
TOPIC_ID = TopicId(UUID(int=11))
NOW_MS = 1_000_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


class Case:
    """One log of one engine. Every call checks the order of its offsets."""

    def __init__(self, engine: Engine, config: LogConfig = CONFIG) -> None:
        self.engine = engine
        engine.recover(lambda *, done, total: None, NOW_MS)
        self.log: PartitionLog = engine.create(PARTITION, TOPIC_ID, config, NOW_MS)
        self.epoch = 4

    def check(self) -> None:
        log = self.log
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.durable_offset <= log.log_end_offset

    def try_append(
        self, batch: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo | StorageError:
        item = AppendItem(self.log, memoryview(bytearray(batch)), LeaderEpoch(self.epoch), origin)
        [result] = self.engine.append([item], NOW_MS)
        self.check()
        return result

    def append(
        self, batch: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo:
        result = self.try_append(batch, origin)
        assert isinstance(result, LogAppendInfo), result
        return result

    def fill(self, *counts: int) -> None:
        for count in counts:
            self.append(batch_of(count))

    def follow(self, base_offset: int, count: int, epoch: int = 4) -> LogAppendInfo:
        batch = batch_of(count, base_offset=base_offset, leader_epoch=epoch)
        return self.append(batch, AppendOrigin.REPLICATION)

    def mark(self, producer_id: int, *, commit: bool, epoch: int = 0) -> LogAppendInfo:
        marker = build_end_marker_batch(
            commit=commit,
            coordinator_epoch=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=NOW_MS,
        )
        return self.append(marker, AppendOrigin.COORDINATOR)

    def advance(self, offset: int) -> None:
        self.log.advance_high_watermark(Offset(offset))
        self.check()

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(Offset(offset), NOW_MS)
        self.check()

    def read(
        self, start: int, *, below: int = 2**60, max_bytes: int = 10**6, at_least_one: bool = True
    ) -> list[tuple[int, int]]:
        """Return the first and last offsets of the batches of one read."""
        batches, end_offset = self.read_once(start, below, max_bytes, at_least_one)
        assert (end_offset > batches[-1][1]) if batches else (end_offset == start)
        return batches

    def read_once(
        self, start: int, below: int, max_bytes: int, at_least_one: bool
    ) -> tuple[list[tuple[int, int]], int]:
        read = self.log.read(
            Offset(start), below=Offset(below), max_bytes=max_bytes, at_least_one=at_least_one
        )
        content = b"".join(os.pread(s.fd, s.length, s.position) for s in read.slices)
        assert len(content) == read.size_bytes
        read.lease.release()
        batches, position = [], 0
        while position < len(content):
            header = read_header(content, position)
            batches.append((header.base_offset, header.last_offset))
            position += header.size
        return batches, read.end_offset

    def read_all(self) -> list[tuple[int, int]]:
        batches: list[tuple[int, int]] = []
        position = int(self.log.log_start_offset)
        while position < self.log.log_end_offset:
            part, end_offset = self.read_once(position, 2**60, 10**6, True)
            if not part:
                break
            assert end_offset > position
            batches += part
            position = end_offset
        return batches


def batch_of(count: int, *, base_offset: int = 0, **fields: Any) -> bytearray:
    times = fields.pop("times", [NOW_MS] * count)
    records = [
        Record(base_offset + index, time, b"key", b"value" * 5) for index, time in enumerate(times)
    ]
    return build_batch(records, base_offset=base_offset, **fields)


def of_producer(sequence: int, count: int = 1, *, producer_id: int = 7, **fields: Any) -> bytearray:
    fields = {"producer_epoch": 0, **fields}
    return batch_of(count, producer_id=producer_id, base_sequence=sequence, **fields)


def claiming(count: int, payload: bytes, codec: Codec = Codec.NONE) -> bytearray:
    """Build a batch with a valid CRC and any payload."""
    batch = bytearray(batch_of(1)[:HEADER_BYTES] + payload)
    fields = read_header(batch)._replace(
        batch_length=len(batch) - LOG_OVERHEAD,
        attributes=int(codec),
        last_offset_delta=count - 1,
        record_count=count,
    )
    HEADER.pack_into(batch, 0, *fields)
    HEADER.pack_into(batch, 0, *fields._replace(crc=compute_crc(batch)))
    return batch
