"""An engine with several logs whose flushes run on request, for tests of interleavings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, Job, LogAppendInfo
from penstock.storage.errors import StorageError
from penstock.storage.group_commit import Background, Item
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_000_000_000
LONG_MS = 10**9
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
EXPIRING = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=1)
COMPACTED = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
)
FIRST, SECOND = TopicPartition("a", 0), TopicPartition("b", 0)


class Deferred:
    """A background that runs its work on `drain`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)

    def drain(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class EngineHarness:
    """An engine on a simulated disk.

    `after` restarts it on a survivor of a crash, without deferring.
    """

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        config: LogConfig = CONFIG,
        *,
        directories: tuple[str, ...] = ("/d",),
        background: Background | None = None,
        descriptors: int = 1200,
    ) -> None:
        self.disk = SimulatedDisk(*directories) if disk is None else disk
        self.config = config
        self.directories = directories
        self.now_ms = NOW_MS
        self.reports: list[str] = []
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=directories),
            config_of=lambda topic: config,
            disk=self.disk,
            background=background,
            logger=message_logger(self.reports.append),
            descriptors=descriptors,
        )
        recovered = self.engine.recover(lambda *, done, total: None, NOW_MS)
        self.logs = {name: log for name, log in recovered.items() if isinstance(log, SegmentedLog)}

    def after(self, disk: SimulatedDisk) -> EngineHarness:
        return EngineHarness(disk, self.config, directories=self.directories)

    def create(self, partition: TopicPartition = FIRST, *, topic_id: int = 1) -> SegmentedLog:
        log = self.engine.create(partition, TopicId(UUID(int=topic_id)), self.config, NOW_MS)
        assert isinstance(log, SegmentedLog)
        return log

    def recreate(self, partition: TopicPartition = FIRST, *, topic_id: int = 2) -> SegmentedLog:
        self.engine.delete(partition)
        return self.create(partition, topic_id=topic_id)

    def try_append(self, log: SegmentedLog, count: int = 1, *, epoch: int = 0) -> object:
        records = [Record(index, NOW_MS, b"k%d" % index, b"v" * 20) for index in range(count)]
        item = AppendItem(log, memoryview(build_batch(records)), LeaderEpoch(epoch))
        return self.engine.append([item], NOW_MS)[0]

    def append(self, log: SegmentedLog, batches: int = 1, *, epoch: int = 0) -> None:
        """Append batches of two records each, replicated at once."""
        for _ in range(batches):
            result = self.try_append(log, 2, epoch=epoch)
            assert isinstance(result, LogAppendInfo), result
        log.advance_high_watermark(log.log_end_offset)

    def flush(self, log: SegmentedLog) -> list[StorageError | None]:
        """Return the results of the flush, filled when the background runs."""
        answers: list[StorageError | None] = []
        self.engine.flush(log, log.log_end_offset, answers.append)
        return answers

    def due_jobs(self, *names: str) -> list[Job]:
        """Return jobs whose names start with `names`, all due at once."""
        due = [*self.engine.due_jobs(self.now_ms), *self.engine.due_jobs(self.now_ms + LONG_MS)]
        self.now_ms += LONG_MS
        jobs = [job for job in due if job.name.startswith(names)]
        assert jobs, [job.name for job in due]
        return jobs

    def run_jobs(self, *names: str) -> None:
        for job in self.due_jobs(*names):
            job.run(lambda function: function())

    @property
    def failed(self) -> object:
        return self.engine.statistics().failed_directories

    def base_offsets(self, log: SegmentedLog) -> list[int]:
        """Return the base offsets of all batches as read."""
        return list(self._base_offsets(log))

    def _base_offsets(self, log: SegmentedLog) -> Iterator[int]:
        position = log.log_start_offset
        while position < log.log_end_offset:
            read = log.read(position, below=log.log_end_offset, max_bytes=300, at_least_one=True)
            content = b"".join(self.disk.pread(s.fd, s.length, s.position) for s in read.slices)
            read.lease.release()
            yield from (header.base_offset for _, header in iter_headers(content))
            position = Offset(read.end_offset)
