"""The log directories of one broker from start to stop: lock, recover, flush, close.

Owns the engine and the threads beside the event loop. Partitions belong to the ReplicaManager.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.effective_config import EffectiveConfig
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import Disk
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import TopicPartition
from penstock.replication.topic_config import resolve_topic_config
from penstock.server.errors import StartRefused
from penstock.storage.engine import Engine, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine

if TYPE_CHECKING:
    from penstock.storage.commit_log.commit_log_engine import CommitLogEngine

SYNC_THREADS = 4
PROGRESS_EVERY_S = 1.0


class BrokerStorage:
    """`lock`, `recover`, then use; `close` for a clean stop, and always `abandon` at the end."""

    def __init__(
        self,
        config: StorageConfig,
        *,
        disk: Disk,
        descriptors: int,  # open log files at most
        logger: EventLogger,
    ) -> None:
        self._log_dirs = config.log_dirs
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._broker_config: Callable[[], EffectiveConfig]  # set by `recover`, like the next
        self._topic_configs: Mapping[str, Mapping[str, str]] = {}
        self._is_closed = False
        self._progress: _RecoveryProgress | None = None  # None: not begun
        self.recovered: Mapping[TopicPartition, PartitionLog] = {}
        self.background = FlushThreads(SYNC_THREADS)
        # One thread for what must not run in parallel: the embedded store's journal, recovery.
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self.engine: Engine = _engine_of(config.engine)(
            config,
            config_of=self._config_of,
            disk=disk,
            background=self.background,
            post=self._post,
            logger=logger,
            descriptors=descriptors,
        )

    def _post(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def lock(self) -> Sequence[str]:
        """The directories that can be used: the broker starts with those that work.

        The first one is required, because it holds the embedded metadata store.
        """
        self.engine.lock()
        failed = self.engine.statistics().failed_directories
        first = os.path.abspath(self._log_dirs[0])
        if first in failed:
            raise StartRefused(
                f"data directory {first} cannot be used ({failed[first]}); it holds the metadata "
                f"of all topics: make it usable, or name another with --data or log.dirs"
            )
        return [path for path in self._log_dirs if os.path.abspath(path) not in failed]

    @property
    def remaining_logs(self) -> int:
        """Partitions that are still to be recovered; 0 before and after."""
        return 0 if self._progress is None else self._progress.remaining

    async def recover(
        self,
        topic_configs: Mapping[str, Mapping[str, str]],
        broker_config: Callable[[], EffectiveConfig],
        wall_ms: Callable[[], int],
    ) -> None:
        """Recover off the event loop, because after a crash it reads whole logs."""
        self._topic_configs = topic_configs
        self._broker_config = broker_config
        started_s = time.monotonic()
        self._logger.info("recovery_started", log_dirs=self._log_dirs)
        progress = self._progress = _RecoveryProgress(self._logger)
        self.recovered = await self._loop.run_in_executor(
            self.thread, lambda: self.engine.recover(progress, wall_ms())
        )
        self._logger.info(
            "recovery_finished",
            partitions=len(self.recovered),
            duration_ms=round((time.monotonic() - started_s) * 1000),
        )

    def _config_of(self, topic: str) -> LogConfig:
        overrides = self._topic_configs.get(topic, {})
        return resolve_topic_config(topic, overrides, self._broker_config(), self._logger).log

    async def flush_recovered(self) -> None:
        """Flush recovered logs so that the high watermark reaches all that was acknowledged.

        With synchronous flush only durable records count, and after a crash nobody knows which
        are; clients must not see a log end below what was acknowledged to them.
        """
        flushed: list[asyncio.Future[None]] = []
        for log in self.recovered.values():
            if log.high_watermark < log.log_end_offset:
                done = self._loop.create_future()
                flushed.append(done)
                # A failed flush fences the log, and its clients get the error.
                self.engine.flush(log, log.log_end_offset, partial(_settle, done))
        if flushed:
            await asyncio.wait(flushed)

    async def close(self) -> None:
        """Flush everything and mark the shutdown as clean."""
        # Flushes under way end first, and their callbacks run on the loop, before the engine
        # closes.
        await self._loop.run_in_executor(self.thread, self.background.join)
        await asyncio.sleep(0)
        await self._loop.run_in_executor(self.thread, self.engine.close)
        self._is_closed = True

    def abandon(self) -> None:
        """Release what `close` did not, as a crash would: the next start recovers."""
        if not self._is_closed:
            self.engine.abandon()
        self.thread.shutdown(wait=False)
        self.background.stop()


def _engine_of(name: str) -> "type[SegmentedEngine] | type[CommitLogEngine]":
    if name == "segmented":
        return SegmentedEngine
    # Imported here, because few brokers need it and every start would pay for it.
    from penstock.storage.commit_log.commit_log_engine import CommitLogEngine

    return CommitLogEngine


class _RecoveryProgress:
    """Logs the progress of recovery once a second."""

    def __init__(self, logger: EventLogger) -> None:
        self._logger = logger
        self._next_s = time.monotonic() + PROGRESS_EVERY_S
        self.remaining = 0  # written by the thread that recovers

    def __call__(self, *, done: int, total: int) -> None:
        self.remaining = total - done
        now_s = time.monotonic()
        if now_s >= self._next_s and done < total:
            self._next_s = now_s + PROGRESS_EVERY_S
            self._logger.info(
                "recovery_progress",
                f"recovering: {done} of {total} partitions",
                done=done,
                total=total,
            )


def _settle(done: "asyncio.Future[None]", error: StorageError | None) -> None:
    done.set_result(None)
