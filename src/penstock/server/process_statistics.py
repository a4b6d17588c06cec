"""Processor time, memory, files and disk traffic of this process; zeros where /proc is absent."""

import gc
import os
import resource
import time
from contextlib import suppress

from penstock.metrics.statistics import ProcessStatistics

_STARTED_S = time.time()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_process_statistics() -> ProcessStatistics:
    times = os.times()
    disk = _read_disk()
    return ProcessStatistics(
        start_time_s=_STARTED_S,
        cpu_s=times.user + times.system,
        resident_bytes=_read_resident(),
        open_fds=_count_files(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        disk_read_bytes=disk.get("read_bytes", 0),
        disk_written_bytes=disk.get("write_bytes", 0),
        gc_collections=tuple(int(generation["collections"]) for generation in gc.get_stats()),
    )


def _read_resident() -> int:
    with suppress(OSError, ValueError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return 0


def _count_files() -> int:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


def _read_disk() -> dict[str, int]:
    """Not readable in some containers."""
    with suppress(OSError, ValueError), open("/proc/self/io") as file:
        pairs = (line.split(":") for line in file)
        return {name: int(value) for name, value in pairs}
    return {}
