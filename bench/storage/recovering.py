"""Recovery after a crash against reading the same bytes with their CRC."""

import os
from typing import Any

from crc32c import crc32c

from bench.measure import alternate, ratio
from bench.storage.setting import (
    abandon,
    append,
    create_log,
    data_directory,
    make_batch,
    open_engine,
)
from penstock.config.log_config import LogConfig
from penstock.storage.scan import CHUNK_BYTES


def measure(batch_bytes: int, *, log_bytes: int = 128 << 20, rounds: int = 9) -> dict[str, Any]:
    batch = make_batch(batch_bytes, record_bytes=min(1000, batch_bytes // 2))
    with data_directory() as path:
        engine = open_engine(path)
        log = create_log(engine, LogConfig())
        for _ in range(log_bytes // len(batch)):
            append(engine, log, batch)
        end_offset, size, file = (
            log.log_end_offset,
            log.segments.size_bytes,
            log.segments[0].file.path,
        )
        abandon(engine)

        def raw() -> None:
            buffer = memoryview(bytearray(CHUNK_BYTES // len(batch) * len(batch)))
            descriptor = os.open(file, os.O_RDONLY)
            position = 0
            while position < size:
                filled = os.preadv(descriptor, [buffer], position)
                for place in range(0, filled, len(batch)):
                    crc32c(buffer[place + 21 : place + len(batch)])
                position += filled
            os.close(descriptor)

        def ours() -> None:
            again = open_engine(path)
            (only,) = again.statistics().logs
            assert only.log_end_offset == end_offset
            abandon(again)

        seconds = alternate(rounds, raw=raw, ours=ours)
    return {
        "batch_bytes": len(batch),
        "log_bytes": size,
        "ratio_to_raw": ratio(seconds["raw"], seconds["ours"]),
        "megabytes_per_second": round(size / min(seconds["ours"]) / 1e6),
    }
