"""Recovery after a crash, compared with reading the same bytes and checking CRCs."""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from bench.measure import alternate, ratio
from bench.storage.harness import (
    NOW_MS,
    abandon,
    append,
    create_log,
    data_directory,
    make_batch,
    open_engine,
    stamp_time,
)
from penstock.config.log_config import LogConfig
from penstock.storage.log import SegmentedLog
from penstock.storage.scan import CHUNK_BYTES


def measure(batch_bytes: int, *, log_bytes: int = 512 << 20, rounds: int = 25) -> dict[str, Any]:
    batch = make_batch(batch_bytes, record_bytes=min(1000, batch_bytes // 2))
    with data_directory() as path:
        log = _leave_unclean(path, batch, log_bytes // len(batch))
        file, size, end_offset = (
            log.segments[0].file.path,
            log.segments.size_bytes,
            log.log_end_offset,
        )

        def raw() -> None:
            _read_and_check(file, size, len(batch))

        def ours() -> None:
            again = open_engine(path)
            (only,) = again.statistics().logs
            assert only.log_end_offset == end_offset
            abandon(again)

        raw_cpu, ours_cpu = _Cpu(raw), _Cpu(ours)
        seconds = alternate(rounds, raw=raw_cpu, ours=ours_cpu)
    pairs = zip(seconds["raw"], seconds["ours"], strict=True)
    count = size // len(batch)
    return {
        "batch_bytes": len(batch),
        "log_bytes": size,
        # Other processes slow a long round more than a short one: rounds compared in pairs and
        # CPU time show what the code costs.
        "ratio_to_raw": ratio(seconds["raw"], seconds["ours"])
        | {"of_pairs": round(statistics.median(raw / ours for raw, ours in pairs), 3)},
        "cpu_ratio_to_raw": ratio(raw_cpu.seconds, ours_cpu.seconds),
        "microseconds_per_batch_raw": round(min(seconds["raw"]) / count * 1e6, 2),
        "microseconds_per_batch_ours": round(min(seconds["ours"]) / count * 1e6, 2),
        "megabytes_per_second": round(size / min(seconds["ours"]) / 1e6),
    }


def _leave_unclean(path: str, batch: bytearray, count: int) -> SegmentedLog:
    engine = open_engine(path)
    log = create_log(engine, LogConfig())
    for number in range(count):
        # Increasing timestamps: each indexed batch gets an entry in both indexes.
        stamp_time(batch, NOW_MS - count + number)
        append(engine, log, batch)
    abandon(engine)
    return log


def _read_and_check(file: str, size: int, batch_bytes: int) -> None:
    """The minimum that recovery must do, with the size of every batch known in advance."""
    buffer = memoryview(bytearray(CHUNK_BYTES // batch_bytes * batch_bytes))
    descriptor = os.open(file, os.O_RDONLY)
    position = 0
    while position < size:
        filled = os.preadv(descriptor, [buffer], position)
        for start in range(0, filled, batch_bytes):
            crc32c(buffer[start + 21 : start + batch_bytes])
        position += filled
    os.close(descriptor)


class _Cpu:
    """A workload that records the CPU time of each run."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.seconds: list[float] = []

    def __call__(self) -> None:
        start = time.process_time()
        self._work()
        self.seconds.append(time.process_time() - start)
