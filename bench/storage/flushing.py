"""Group commit: durable appends to 1 and 200 logs, compared with a sync after each."""

import os
import queue
from collections.abc import Callable
from typing import Any

from bench.measure import alternate, ratio
from bench.storage.harness import NOW_MS, append, create_log, data_directory, make_batch
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.storage.errors import StorageError
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine


def measure(logs: int, *, rounds: int = 15) -> dict[str, Any]:
    """Appends to each log, then waits until all are durable."""
    batch = make_batch(16 << 10)
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    with data_directory() as path, FlushThreads(workers=8) as threads:
        engine = SegmentedEngine(
            StorageConfig(log_dirs=(path,)),
            config_of=lambda _: LogConfig(),
            background=threads,
            post=posted.put,
        )
        engine.recover(lambda *, done, total: None, NOW_MS)
        targets = [create_log(engine, LogConfig(), number) for number in range(logs)]
        files = [
            os.open(f"{path}/raw-{number}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for number in range(logs)
        ]

        def one_by_one() -> None:
            for file in files:
                os.write(file, batch)
                os.fdatasync(file)

        def group_commit() -> None:
            waiting = len(targets)

            def done(error: StorageError | None) -> None:
                nonlocal waiting
                assert error is None, error
                waiting -= 1

            for log in targets:
                append(engine, log, batch)
            for log in targets:
                engine.flush(log, log.log_end_offset, done)
            while waiting:
                posted.get()()

        group_commit()  # the first round also syncs new directory entries
        seconds = alternate(rounds, one_by_one=one_by_one, group_commit=group_commit)
        for file in files:
            os.close(file)
        engine.close()
    return {
        "logs": logs,
        "ratio_to_one_by_one": ratio(seconds["one_by_one"], seconds["group_commit"]),
        "milliseconds_one_by_one": round(min(seconds["one_by_one"]) * 1e3, 2),
        "milliseconds_group_commit": round(min(seconds["group_commit"]) * 1e3, 2),
    }
