"""A commit log engine on a simulated disk, with jobs and flushes that run on request."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tests.unit.storage.several_logs import COMPACTED, CONFIG, FIRST, LONG_MS, NOW_MS, Deferred

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import Record, build_batch
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.commit_log.consume_queue import QueueLimits
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.engine import AppendItem, Engine, LogAppendInfo
from penstock.storage.errors import StorageError
from penstock.storage.group_commit import Background, Inline
from penstock.testing.simulated_disk import SimulatedDisk

__all__ = ["COMPACTED", "Deferred", "SharedLog"]


class SharedLog:
    """Every checkpoint writes the queues to their files."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        config: LogConfig = CONFIG,
        *,
        directories: tuple[str, ...] = ("/d",),
        background: Background | None = None,
        file_bytes: int = 2000,
    ) -> None:
        self.disk = SimulatedDisk(*directories) if disk is None else disk
        self.config = config
        self.now_ms = NOW_MS
        self.reports: list[str] = []
        self.engine: Engine = CommitLogEngine(
            StorageConfig(
                log_dirs=directories,
                commit_log_file_bytes=file_bytes,
                commit_log_min_live_ratio=0.9,
            ),
            config_of=lambda topic: config,
            disk=self.disk,
            background=background or Inline(),
            logger=message_logger(self.reports.append),
        )
        for directory in self.directories:
            directory.queue_limits = QueueLimits(least_saved=1, least_dropped=3)
        self.logs = dict(self.engine.recover(lambda *, done, total: None, NOW_MS))

    @property
    def directories(self) -> list[CommitLogDirectory]:
        assert isinstance(self.engine, CommitLogEngine)
        return self.engine._directories

    def create(self, partition: TopicPartition = FIRST) -> CommitLogPartition:
        log = self.engine.create(partition, TopicId(UUID(int=1)), self.config, NOW_MS)
        return self.own(log)

    @staticmethod
    def own(log: object) -> CommitLogPartition:
        assert isinstance(log, CommitLogPartition)
        return log

    def try_append(self, log: CommitLogPartition, key: bytes = b"k") -> object:
        records = [Record(index, NOW_MS, key, b"v" * 20) for index in range(2)]
        item = AppendItem(log, memoryview(build_batch(records)), LeaderEpoch(0))
        return self.engine.append([item], NOW_MS)[0]

    def append(self, log: CommitLogPartition, batches: int = 1, key: bytes = b"k") -> None:
        """Batches of two records each, replicated at once."""
        for _ in range(batches):
            result = self.try_append(log, key)
            assert isinstance(result, LogAppendInfo), result
        log.advance_high_watermark(log.log_end_offset)

    def flush(self, log: CommitLogPartition) -> list[StorageError | None]:
        answers: list[StorageError | None] = []
        self.engine.flush(log, log.log_end_offset, answers.append)
        return answers

    def run_jobs(self, *names: str, visit: Callable[[], None] = lambda: None) -> None:
        """All due jobs whose names start so; `visit` runs before each of their visits."""

        def on_owner(function: Callable[[], object]) -> object:
            visit()
            return function()

        due = [*self.engine.due_jobs(self.now_ms), *self.engine.due_jobs(self.now_ms + LONG_MS)]
        self.now_ms += LONG_MS
        jobs = [job for job in due if job.name.startswith(names)]
        assert jobs, [job.name for job in due]
        for job in jobs:
            job.run(on_owner)  # type: ignore[arg-type]

    def read_once(self, log: CommitLogPartition, start: int) -> tuple[list[int], Offset]:
        """The base offsets of one read, and where the next begins."""
        read = log.read(Offset(start), below=log.log_end_offset, max_bytes=300, at_least_one=True)
        content = b"".join(self.disk.pread(s.fd, s.length, s.position) for s in read.slices)
        read.lease.release()
        return [header.base_offset for _, header in iter_headers(content)], read.end_offset

    def base_offsets(self, log: CommitLogPartition) -> list[int]:
        offsets: list[int] = []
        position = log.log_start_offset
        while position < log.log_end_offset:
            part, position = self.read_once(log, position)
            offsets += part
        return offsets

    def queue_files(self) -> list[str]:
        return [path for path in self.disk.files() if "/consumequeue/" in path]

    def commit_log_files(self) -> list[str]:
        return sorted(path for path in self.disk.files() if "/commitlog/" in path)
