"""The log model's harness on the commit log engine: the same steps, the same expectations."""

# mypy: disable-error-code="override, return-value, unreachable, attr-defined, no-any-return"

from tests.properties.log_harness import Harness
from tests.properties.log_model import Model, Stored, find_hole

from penstock.config.log_config import StorageConfig
from penstock.logs.event_logger import NO_LOGGER, message_logger
from penstock.storage.commit_log.checkpoint_job import HighWatermarkJob, StateCheckpointJob
from penstock.storage.commit_log.cleaning import CleaningJob
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.commit_log.consume_queue import QueueLimits
from penstock.storage.commit_log.expiring import ExpiryJob
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.engine import Job, OnOwner, PartitionLog


class AllJobs:
    """A checkpoint, a frame of high watermarks, and a pass over the files."""

    name = "all"

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs

    def run(self, on_owner: OnOwner) -> None:
        for job in self._jobs:
            job.run(on_owner)


class CommitLogHarness(Harness):
    """`log` and `engine` are the commit log engine's."""

    def _make_engine(self, config: StorageConfig, descriptors: int) -> CommitLogEngine:
        self._storage = StorageConfig(
            log_dirs=config.log_dirs,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            cleaner_dedupe_buffer_bytes=config.cleaner_dedupe_buffer_bytes,
            commit_log_file_bytes=self.random.choice([500, 1500, 10**6]),
            commit_log_min_live_ratio=self.random.choice([0.0, 0.3, 0.9]),
        )
        engine = CommitLogEngine(
            self._storage,
            config_of=lambda topic: self.config,
            disk=self.disk,
            background=self.background,
            logger=message_logger(self.reports.append),
            descriptors=descriptors,
        )
        (directory,) = engine._directories
        least_saved, least_dropped = self.random.choice([1, 3, 64]), self.random.choice([0, 3])
        directory.queue_limits = QueueLimits(least_saved, least_dropped)
        return engine

    def _own(self, log: PartitionLog | None) -> CommitLogPartition:
        assert isinstance(log, CommitLogPartition), f"the log is gone: {self.reports}"
        return log

    @property
    def _directory(self) -> CommitLogDirectory:
        (directory,) = self.engine._directories
        assert isinstance(directory, CommitLogDirectory)
        return directory

    def _check_segments(self) -> None:
        """The live bytes of every log are those that its queue points to, file by file."""
        directory = self._directory
        for log in directory.logs.values():
            live: dict[int, int] = {}
            entries = list(log.queue.entries(log.queue.first, log.queue.end))
            assert log.size_bytes == sum(entry.size for entry in entries)
            times = [entry.time_ms for entry in entries]
            assert times == sorted(times)
            for entry in entries:
                base = directory.commit_log.get_file(entry.position).base
                live[base] = live.get(base, 0) + entry.size
            assert log.live == live

    def _find_match(
        self, recovered: list[Stored], alternatives: list[Model], start: int
    ) -> Model | None:
        """A failed sync at the end of a pass may lose the pass and the end of the log at once."""
        matching = super()._find_match(recovered, alternatives, start)
        if matching is not None or not self.is_compacting:
            if self.is_compacting and any(matching is ghost for ghost in self.ghosts):
                self._is_compacted_match = True
            return matching
        end, low = self.log.log_end_offset, max(start, self.murky_below)
        decided = min(end, self.model.high_watermark)
        seen = [batch for batch in recovered if batch.last >= low]
        for model in alternatives:
            before = [batch for batch in model.visible(low) if batch.last < end]
            if find_hole(before, seen, end_of_decided=decided) is None:
                self._is_compacted_match = True
                return model
        return None

    def _adopt_compaction(self, after: list[Stored]) -> None:
        """Until the pass has ended, a failed sync may take back what it has installed."""
        self.ghosts.append(self.model.copy())
        super()._adopt_compaction(after)

    def _first_offset(self) -> int:
        return self.log.log_start_offset

    def _has_snapshots(self) -> bool:
        return bool(self.log.snapshots)

    def _is_creation_durable(self) -> bool:
        return self._directory.commit_log.durable_end > self.log.state_frame

    def _settle_checkpointed(self) -> None:
        """Not every run of the jobs syncs."""
        if self._is_creation_durable():
            self._settle_deletion()

    def remove_folders(self) -> None:
        """Nothing is left to remove but files of the commit log."""
        self._cleaning_job().run(lambda function: function())

    def _cleaning_job(self) -> CleaningJob:
        return CleaningJob(self._directory, self.disk, self._storage, CleanerThrottler(), NO_LOGGER)

    def _retention_job(self) -> Job:
        return ExpiryJob(self._directory, self.now_ms)

    def _checkpoint_job(self) -> Job:
        jobs: list[Job] = [HighWatermarkJob(self._directory)]
        if self.random.random() < 0.7:
            jobs.append(StateCheckpointJob(self._directory, self.disk))
        if self.random.random() < 0.7:
            jobs.append(self._cleaning_job())
        return AllJobs(jobs)
