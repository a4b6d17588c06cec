"""A compaction pass, compared with reading the same bytes, checking CRCs and writing what is
kept."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from crc32c import crc32c

from bench.measure import alternate, ratio
from bench.storage.harness import NOW_MS, append, create_log, data_directory, open_engine
from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import Result

RECORDS_A_BATCH = 100


def measure(
    record_bytes: int, *, log_bytes: int = 16 << 20, keys: int = 10_000, rounds: int = 3
) -> dict[str, Any]:
    """Keys are written cyclically, so that most records are obsolete."""
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=4 << 20, min_cleanable_dirty_ratio=0.0
    )
    seconds: dict[str, list[float]] = {"raw": [], "ours": []}
    value = os.urandom(record_bytes)
    for _ in range(rounds):
        with data_directory() as path:
            engine = open_engine(path, config)
            log = create_log(engine, config)
            records = 0
            while log.segments.size_bytes < log_bytes:
                batch = [
                    Record(i, NOW_MS, b"%08d" % ((records + i) % keys), value, ())
                    for i in range(RECORDS_A_BATCH)
                ]
                append(engine, log, build_batch(batch))
                records += len(batch)
            log.roll(NOW_MS)
            log.advance_high_watermark(log.log_end_offset)
            files = [segment.file.path for segment in log.segments]
            before = log.segments.size_bytes
            job = engine.make_compaction_job(log, NOW_MS)
            share = keys / records
            once = alternate(
                1,
                raw=partial(_read_and_write, files, path, share),
                ours=partial(job.run, _on_owner),
            )
            for name, spent in once.items():
                seconds[name] += spent
            after = log.segments.size_bytes
            assert log.cleaned_offset == Offset(records), "the pass covered the whole log"
            assert after < before
            engine.close()
    return {
        "record_bytes": record_bytes,
        "records": records,
        "bytes_before": before,
        "bytes_after": after,
        "ratio_to_raw": ratio(seconds["raw"], seconds["ours"]),
        "records_per_second": round(records / min(seconds["ours"])),
        "megabytes_per_second": round(before / min(seconds["ours"]) / 1e6, 1),
    }


def _read_and_write(files: list[str], path: str, share: float) -> None:
    target = os.open(f"{path}/raw", os.O_CREAT | os.O_WRONLY)
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        while content := os.read(descriptor, 1 << 20):
            crc32c(content)
            os.write(target, content[: int(len(content) * share)])
        os.close(descriptor)
    os.fdatasync(target)
    os.close(target)


def _on_owner(function: Callable[[], Result]) -> Result:
    return function()
