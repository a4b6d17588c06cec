"""Look-up by offset at 10 and at 1,000 segments: its cost must not grow with the log."""

import random
import statistics
import time
from typing import Any

from bench.storage.setting import append, create_log, data_directory, make_batch, open_engine
from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.storage.log import SegmentedLog

SEGMENT_BYTES = 256 << 10


def measure(*, rounds: int = 30, reads: int = 2000) -> dict[str, Any]:
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    batch = make_batch(1 << 10, record_bytes=900)
    with data_directory() as path:
        engine = open_engine(path, config)
        logs = {count: create_log(engine, config, count) for count in (10, 1000)}
        for count, log in logs.items():
            while len(log.segments) < count:
                append(engine, log, bytearray(batch))
            log.advance_high_watermark(log.log_end_offset)
        microseconds: dict[int, list[float]] = {count: [] for count in logs}
        source = random.Random(1)
        for _ in range(rounds):
            for count, log in logs.items():
                microseconds[count].append(_read_at_random(log, reads, source))
        engine.close()
    few, many = (statistics.median(microseconds[count]) for count in (10, 1000))
    return {
        "microseconds_at_10_segments": round(few, 2),
        "microseconds_at_1000_segments": round(many, 2),
        "ratio_1000_to_10": {
            "median": round(many / few, 3),
            "best": round(min(microseconds[1000]) / min(microseconds[10]), 3),
        },
    }


def _read_at_random(log: SegmentedLog, reads: int, source: random.Random) -> float:
    offsets = [Offset(source.randrange(log.log_end_offset)) for _ in range(reads)]
    end = log.log_end_offset
    start = time.perf_counter()
    for offset in offsets:
        log.read(offset, below=end, max_bytes=1 << 16, at_least_one=True).lease.release()
    return (time.perf_counter() - start) / reads * 1e6
