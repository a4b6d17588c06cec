"""Look-up by offset with 10 and 1,000 segments: its cost must not grow with the log.

`look_up` finds one batch: segment map, index, a short scan of headers. `read` is the whole call of
a fetch: the look-up, the search for the end of the slice, and the lease. `pread` is the peer: a
page at a known position, which also gets slower, because 1,000 files do not fit the CPU caches. The
log of 10 large segments has as many bytes as that of 1,000: the difference is the cost of segments.
"""

import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.storage.harness import append, create_log, data_directory, make_batch, open_engine
from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine

SEGMENT_BYTES = 256 << 10
READ_BYTES = 64 << 10
LOGS = {
    "10_segments": (10, SEGMENT_BYTES),
    "10_large_segments": (10, 100 * SEGMENT_BYTES),
    "1000_segments": (1000, SEGMENT_BYTES),
}

Work = Callable[[SegmentedLog, list[Offset]], None]


def measure(*, rounds: int = 60, reads: int = 1000) -> dict[str, Any]:
    with data_directory() as path:
        engine = open_engine(path)
        logs = {
            name: _fill_log(engine, partition, *LOGS[name]) for partition, name in enumerate(LOGS)
        }
        works = {"pread": _pread, "look_up": _look_up, "read": _read}
        results = {name: _compare(logs, work, rounds, reads) for name, work in works.items()}
        engine.close()
    return results


def _fill_log(
    engine: SegmentedEngine, partition: int, segments: int, segment_bytes: int
) -> SegmentedLog:
    batch = make_batch(1 << 10, record_bytes=900)
    log = create_log(engine, LogConfig(segment_bytes=segment_bytes), partition)
    while len(log.segments) < segments:
        append(engine, log, bytearray(batch))
    log.advance_high_watermark(log.log_end_offset)
    for segment in log.segments:
        _read(log, [Offset(segment.base_offset)])  # opens the files, which is not measured
    return log


def _pread(log: SegmentedLog, offsets: list[Offset]) -> None:
    segments, batch_bytes = log.segments, log.segments.size_bytes // log.log_end_offset
    for offset in offsets:
        segment = segments[segments.index_of(offset)]
        position = (offset - segment.base_offset) * batch_bytes
        os.pread(segment.file.descriptor, 4096, position)


def _look_up(log: SegmentedLog, offsets: list[Offset]) -> None:
    segments = log.segments
    for offset in offsets:
        segments[segments.index_of(offset)].find_batch(offset)


def _read(log: SegmentedLog, offsets: list[Offset]) -> None:
    end = log.log_end_offset
    for offset in offsets:
        log.read(offset, below=end, max_bytes=READ_BYTES, at_least_one=True).lease.release()


def _compare(logs: dict[str, SegmentedLog], work: Work, rounds: int, reads: int) -> dict[str, Any]:
    microseconds: dict[str, list[float]] = {name: [] for name in logs}
    source = random.Random(1)
    for _ in range(rounds):
        for name, log in logs.items():
            offsets = [Offset(source.randrange(log.log_end_offset)) for _ in range(reads)]
            start = time.perf_counter()
            work(log, offsets)
            microseconds[name].append((time.perf_counter() - start) / reads * 1e6)
    few, few_large, many = microseconds.values()
    return {
        "microseconds": {
            name: round(statistics.median(values), 2) for name, values in microseconds.items()
        },
        "ratio_1000_to_10": _ratios(few, many),
        "ratio_1000_to_10_of_as_many_bytes": _ratios(few_large, many),
    }


def _ratios(few: list[float], many: list[float]) -> dict[str, float]:
    pairs = (b / a for a, b in zip(few, many, strict=True))
    return {
        "median": round(statistics.median(many) / statistics.median(few), 3),
        "best": round(min(many) / min(few), 3),
        "of_pairs": round(statistics.median(pairs), 3),
    }
