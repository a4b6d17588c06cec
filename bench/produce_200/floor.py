"""The minimum a broker must do for such a request, inlined: parse, check CRCs, stamp, write."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time

from bench.produce_200.request import PARTITIONS, VERSION, make_body
from penstock.protocol.batch import is_crc_valid, stamp_offset_and_epoch
from penstock.protocol.produce_request import read_produce_request


def measure_floor(directory: Path, requests: int) -> dict[str, float]:
    """Microseconds per partition, wall-clock and CPU."""
    directory.mkdir()
    files = [
        os.open(directory / str(index), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for index in range(PARTITIONS)
    ]
    body = make_body()
    wall, cpu = 0.0, 0.0
    for offset in range(requests):
        received = memoryview(bytearray(body))  # stands in for a receive buffer; not timed
        wall_start, cpu_start = perf_counter(), process_time()
        for _, entries in read_produce_request(received, VERSION).topics:
            for index, batch in entries:
                assert batch is not None
                assert is_crc_valid(batch, 0, len(batch))
                stamp_offset_and_epoch(batch, 0, offset, 0)
                os.write(files[index], batch)
        cpu += process_time() - cpu_start
        wall += perf_counter() - wall_start
    for file in files:
        os.close(file)
    count = requests * PARTITIONS
    return {"wall_us": wall / count * 1e6, "cpu_us": cpu / count * 1e6}
