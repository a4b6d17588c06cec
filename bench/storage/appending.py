"""Append, compared with CRC and `os.write` of the same buffers."""

import os
from typing import Any

from crc32c import crc32c

from bench.measure import alternate, ratio
from bench.storage.harness import EPOCH, NOW_MS, create_log, data_directory, make_batch, open_engine
from penstock.config.log_config import LogConfig
from penstock.storage.engine import AppendItem


def measure(batch_bytes: int, *, rounds: int = 40) -> dict[str, Any]:
    batch = memoryview(make_batch(batch_bytes, record_bytes=min(1000, batch_bytes // 2)))
    calls = max(200, (8 << 20) // batch_bytes)
    with data_directory() as path:
        engine = open_engine(path)
        log = create_log(engine, LogConfig())
        descriptor = os.open(f"{path}/raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def raw() -> None:
            for _ in range(calls):
                crc32c(batch[21:])
                os.write(descriptor, batch)

        def ours() -> None:
            for _ in range(calls):
                engine.append([AppendItem(log, batch, EPOCH)], NOW_MS)

        seconds = alternate(rounds, raw=raw, ours=ours)
        assert log.log_end_offset > 0
        os.close(descriptor)
        engine.close()
    return {
        "batch_bytes": len(batch),
        "ratio_to_raw": ratio(seconds["raw"], seconds["ours"]),
        "microseconds_raw": round(min(seconds["raw"]) / calls * 1e6, 2),
        "microseconds_ours": round(min(seconds["ours"]) / calls * 1e6, 2),
    }
