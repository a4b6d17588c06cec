"""10,000 partitions in one log dir: create, append to each, close, reopen."""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.storage.harness import NOW_MS, append, create_log, data_directory, make_batch
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine


def measure(partitions: int = 10_000) -> dict[str, Any]:
    batch = make_batch(1 << 10, record_bytes=900)
    results: dict[str, Any] = {"partitions": partitions}
    most_descriptors = 0

    def step(name: str, work: Callable[[], None]) -> None:
        nonlocal most_descriptors
        start = time.perf_counter()
        work()
        spent = time.perf_counter() - start
        most_descriptors = max(most_descriptors, len(os.listdir("/proc/self/fd")))
        results[f"{name}_microseconds_each"] = round(spent / partitions * 1e6, 1)

    with data_directory() as path, FlushThreads(workers=8) as threads:
        before = _resident_bytes()
        engine = _open(path, threads)
        logs: list[SegmentedLog] = []

        def create() -> None:
            logs.extend(create_log(engine, LogConfig(), number) for number in range(partitions))

        def append_to_each() -> None:
            for log in logs:
                append(engine, log, batch)

        step("create", create)
        step("append", append_to_each)
        step("append_again", append_to_each)
        results["memory_bytes_each"] = (_resident_bytes() - before) // partitions
        step("close", engine.close)
        logs.clear()
        reopened: list[SegmentedEngine] = []
        step("reopen", lambda: reopened.append(_open(path, threads)))
        statistics = reopened[0].statistics()
        assert len(statistics.logs) == partitions
        assert all(log.log_end_offset == 2 for log in statistics.logs)
        step("close_untouched", reopened[0].close)
        step("recover_after_kill", lambda: _recover_after_kill(path, threads))
    results["most_descriptors"] = most_descriptors
    results["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert most_descriptors < 2000
    return results


def _open(path: str, threads: FlushThreads) -> SegmentedEngine:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(path,)), config_of=lambda _: LogConfig(), background=threads
    )
    engine.recover(lambda *, done, total: None, NOW_MS)
    return engine


def _recover_after_kill(path: str, threads: FlushThreads) -> None:
    Path(path, ".kafka_cleanshutdown").unlink()
    _open(path, threads).abandon()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    import json

    print(json.dumps(measure(), indent=2))
