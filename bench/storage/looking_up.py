"""Look-up by offset at 10 and at 1,000 segments: its cost must not grow with the log.

`look_up` finds one batch: segment map, index, a short walk over headers. `read` is the whole call
of a fetch: the look-up, the search for the end of the slice, and the lease.
"""

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.storage.setting import append, create_log, data_directory, make_batch, open_engine
from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.storage.log import SegmentedLog

SEGMENT_BYTES = 256 << 10
COUNTS = (10, 1000)
READ_BYTES = 64 << 10

Work = Callable[[SegmentedLog, list[Offset]], None]


def measure(*, rounds: int = 60, reads: int = 1000) -> dict[str, Any]:
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    batch = make_batch(1 << 10, record_bytes=900)
    with data_directory() as path:
        engine = open_engine(path, config)
        logs = {count: create_log(engine, config, count) for count in COUNTS}
        for count, log in logs.items():
            while len(log.segments) < count:
                append(engine, log, bytearray(batch))
            log.advance_high_watermark(log.log_end_offset)
            _touch_all(log)
        results = {
            work.__name__.lstrip("_"): _compare(logs, work, rounds, reads)
            for work in (_look_up, _read)
        }
        engine.close()
    return results


def _touch_all(log: SegmentedLog) -> None:
    """Files are opened on first use; that is not what is measured."""
    for segment in log.segments:
        _read(log, [Offset(segment.base_offset)])


def _look_up(log: SegmentedLog, offsets: list[Offset]) -> None:
    segments = log.segments
    for offset in offsets:
        segments[segments.place_of(offset)].find_batch(offset)


def _read(log: SegmentedLog, offsets: list[Offset]) -> None:
    end = log.log_end_offset
    for offset in offsets:
        log.read(offset, below=end, max_bytes=READ_BYTES, at_least_one=True).lease.release()


def _compare(
    logs: dict[int, SegmentedLog], work: Work, rounds: int, reads: int
) -> dict[str, float | dict[str, float]]:
    microseconds: dict[int, list[float]] = {count: [] for count in logs}
    source = random.Random(1)
    for _ in range(rounds):
        for count, log in logs.items():
            offsets = [Offset(source.randrange(log.log_end_offset)) for _ in range(reads)]
            start = time.perf_counter()
            work(log, offsets)
            microseconds[count].append((time.perf_counter() - start) / reads * 1e6)
    few, many = (microseconds[count] for count in COUNTS)
    pairs = [b / a for a, b in zip(few, many, strict=True)]
    return {
        "microseconds_at_10_segments": round(statistics.median(few), 2),
        "microseconds_at_1000_segments": round(statistics.median(many), 2),
        "ratio_1000_to_10": {
            "median": round(statistics.median(many) / statistics.median(few), 3),
            "best": round(min(many) / min(few), 3),
            "of_pairs": round(statistics.median(pairs), 3),
        },
    }
