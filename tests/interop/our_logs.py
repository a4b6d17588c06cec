"""Penstock's storage engine on a data directory, as the interop tests use it.

The only module here that calls the engine. One owner, no threads, a fixed clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.batch import BatchHeader, iter_headers
from penstock.protocol.records import Record, iter_records
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo, PartitionLog
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine

Result = TypeVar("Result")

FOREVER_MS = 2**62
SMALL_SEGMENTS = LogConfig(
    segment_bytes=8192, index_interval_bytes=512, segment_ms=FOREVER_MS, retention_ms=-1
)
NOW_MS = 1_800_000_000_000
LONGEST_INTERVAL_MS = 300_000  # of the engine's jobs


class OurLogs:
    """All logs of one data directory, opened by the engine; `close` is a clean shutdown."""

    def __init__(
        self, data: Path, config: LogConfig = SMALL_SEGMENTS, *, only_topic: str | None = None
    ) -> None:
        """`config` applies to every topic, or to one while the others keep small plain segments."""
        self.reports: list[str] = []  # messages of recovery
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(data),)),
            config_of=lambda topic: config if only_topic in (None, topic) else SMALL_SEGMENTS,
            logger=message_logger(self.reports.append),
        )
        self._config = config
        recovered = self.engine.recover(_no_progress, NOW_MS)
        self.logs = {str(partition): _segmented(log) for partition, log in recovered.items()}

    def create(self, name: str, topic_id: UUID) -> SegmentedLog:
        """Creates a log; `name` is that of its directory."""
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        log = self.engine.create(partition, TopicId(topic_id), self._config, NOW_MS)
        self.logs[name] = _segmented(log)
        return self.logs[name]

    def append(
        self,
        log: SegmentedLog,
        batch: bytearray,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Appends one batch as the leader; it is replicated at once."""
        item = AppendItem(log, memoryview(batch), LeaderEpoch(leader_epoch), origin)
        (appended,) = self.engine.append([item], NOW_MS)
        assert isinstance(appended, LogAppendInfo), appended
        log.advance_high_watermark(log.log_end_offset)
        return appended

    def run_upkeep(self) -> list[str]:
        """Runs all jobs that are due after the longest interval; returns their names."""
        self.engine.due_jobs(NOW_MS)
        jobs = self.engine.due_jobs(NOW_MS + LONGEST_INTERVAL_MS)
        for job in jobs:
            job.run(_at_once)
        return [job.name for job in jobs]

    def close(self) -> None:
        self.engine.close()


def read_batches(log: SegmentedLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of the log as read, a few at a time."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, below=log.log_end_offset, max_bytes=3000, at_least_one=True)
        try:
            content = b"".join(os.pread(s.fd, s.length, s.position) for s in read.slices)
        finally:
            read.lease.release()
        for position, header in iter_headers(content):
            yield header, content[position : position + header.size]
        assert read.end_offset > offset, f"a read at {offset} makes no progress"
        offset = read.end_offset


def read_records(log: SegmentedLog) -> list[Record]:
    """Every record except control records."""
    return [
        record
        for header, batch in read_batches(log)
        if not header.is_control
        for record in iter_records(batch)
    ]


def _at_once(function: Callable[[], Result]) -> Result:
    """Runs the visit in this thread."""
    return function()


def _segmented(log: PartitionLog) -> SegmentedLog:
    assert isinstance(log, SegmentedLog)
    return log


def _no_progress(*, done: int, total: int) -> None:
    """Ignores progress."""
