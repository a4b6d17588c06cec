"""The commit log engine beside the segmented one: durable requests, appends and reads.

Both engines work in turn in the same run. A durable request appends one batch to one partition and
waits until it is on disk, as with log.flush.interval.messages=1; all partitions have one under way.
"""

import os
import queue
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from uuid import UUID

from bench.measure import alternate, ratio
from bench.storage.harness import EPOCH, NOW_MS, PARTITION, data_directory, make_batch
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.network.small_slices import SmallSlices, grouped
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.engine import AppendItem, Engine, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine

BATCH_BYTES = 1 << 10
ENGINES: dict[str, Any] = {"segmented": SegmentedEngine, "commitlog": CommitLogEngine}


class OpenEngine:
    """One engine with logs, and a flusher in threads as a broker has it."""

    def __init__(
        self, stack: ExitStack, kind: str, logs: int, *, batch_bytes: int = BATCH_BYTES
    ) -> None:
        path = stack.enter_context(data_directory())
        self.path = path
        threads = stack.enter_context(FlushThreads(workers=4))
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.engine: Engine = ENGINES[kind](
            StorageConfig(log_dirs=(path,)),
            config_of=lambda _: LogConfig(),
            background=threads,
            post=self._posted.put,
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)
        self.logs: list[PartitionLog] = [
            self.engine.create(
                TopicPartition(PARTITION.topic, number), TopicId(UUID(int=1)), LogConfig(), NOW_MS
            )
            for number in range(logs)
        ]
        self._batch = make_batch(batch_bytes)

    def append(self) -> None:
        """One batch to each log, each in a request of its own."""
        for log in self.logs:
            self.engine.append([AppendItem(log, memoryview(self._batch), EPOCH)], NOW_MS)

    def make_durable(self) -> None:
        waiting = len(self.logs)

        def done(error: StorageError | None) -> None:
            nonlocal waiting
            assert error is None, error
            waiting -= 1

        self.append()
        for log in self.logs:
            self.engine.flush(log, log.log_end_offset, done)
        while waiting:
            self._posted.get()()

    def read(self) -> None:
        """Everything in reads of 1 MiB, copied as a connection copies small slices."""
        for log in self.logs:
            position = Offset(0)
            while position < log.log_end_offset:
                read = log.read(
                    position, below=log.log_end_offset, max_bytes=1 << 20, at_least_one=True
                )
                for piece in grouped(read.slices):
                    if isinstance(piece, SmallSlices):
                        content = piece.read()
                    else:
                        content = os.pread(piece.fd, piece.length, piece.position)
                    assert len(content) == piece.length
                position = read.end_offset
                read.lease.release()

    @property
    def open_files(self) -> int:
        return self.engine.directory_statistics().open_files


def measure(logs: int, *, rounds: int = 7) -> dict[str, Any]:
    with ExitStack() as stack:
        opened = {kind: OpenEngine(stack, kind, logs) for kind in ENGINES}
        for engine in opened.values():
            engine.make_durable()  # the first round also syncs new directory entries
        durable = alternate(
            rounds, **{kind: engine.make_durable for kind, engine in opened.items()}
        )
        appending = alternate(rounds, **{kind: engine.append for kind, engine in opened.items()})
        appending_cpu = {kind: _cpu_us(engine) for kind, engine in opened.items()}
        for engine in opened.values():
            for _ in range(max(1, 10_000 // logs)):
                engine.append()
        reading = alternate(3, **{kind: engine.read for kind, engine in opened.items()})
        files = {kind: engine.open_files for kind, engine in opened.items()}
        closing = {kind: _time(engine.engine.close) for kind, engine in opened.items()}
    return {
        "partitions": logs,
        "durable_requests_per_s": {
            kind: round(logs / min(seconds)) for kind, seconds in durable.items()
        },
        "durable_ratio": ratio(durable["segmented"], durable["commitlog"]),
        "append_us": {
            kind: round(min(seconds) / logs * 1e6, 2) for kind, seconds in appending.items()
        },
        "append_cpu_us": appending_cpu,
        "append_ratio": ratio(appending["segmented"], appending["commitlog"]),
        "read_ms": {kind: round(min(seconds) * 1e3, 1) for kind, seconds in reading.items()},
        "read_ratio": ratio(reading["segmented"], reading["commitlog"]),
        "open_files": files,
        "close_s": closing,
    }


def _cpu_us(opened: OpenEngine) -> float:
    """Processor time of an append, which other work on the machine changes least."""
    best_s = float("inf")
    for _ in range(3):
        began_s = time.process_time()
        for _ in range(max(1, 3_000 // len(opened.logs))):
            opened.append()
        best_s = min(best_s, time.process_time() - began_s)
    return round(best_s / max(3_000 // len(opened.logs), 1) / len(opened.logs) * 1e6, 2)


def measure_recovery(*, logs: int = 12, size_bytes: int = 200 << 20) -> dict[str, Any]:
    """Seconds per GB to open what a kill has left, without any checkpoint since the start."""
    seconds: dict[str, float] = {}
    for kind in ENGINES:
        with ExitStack() as stack:
            opened = OpenEngine(stack, kind, logs, batch_bytes=16 << 10)
            for _ in range(size_bytes // logs // (16 << 10)):
                opened.append()
            opened.engine.abandon()
            engine: Engine = ENGINES[kind](
                StorageConfig(log_dirs=(opened.path,)), config_of=lambda _: LogConfig()
            )
            elapsed_s = _time(lambda engine=engine: _recover(engine))  # type: ignore[misc]
            seconds[kind] = round(elapsed_s / size_bytes * 1e9, 2)
            engine.abandon()
    return {"bytes": size_bytes, "batch_bytes": 16 << 10, "s_per_gb": seconds}


def _recover(engine: Engine) -> None:
    assert engine.recover(lambda *, done, total: None, NOW_MS)


def _time(action: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    action()
    return round(time.perf_counter() - began_s, 3)
