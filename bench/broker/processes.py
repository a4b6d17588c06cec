"""CPU time and memory of a process, from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SCHEDULED = 2  # the kind of CPU clock: time on a core, as the scheduler counts it


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process, including ended ones."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_ns(pid: int) -> int:
    """The same in nanoseconds: the process's CPU clock, by the number that Linux gives it."""
    return time.clock_gettime_ns(~pid << 3 | _SCHEDULED)


def resident_mb(pid: int) -> float:
    return _status_kb(pid, "VmRSS") / 1024


def peak_resident_mb(pid: int) -> float:
    return _status_kb(pid, "VmHWM") / 1024


def proportional_mb(pid: int) -> float:
    """Proportional set size: shared pages are divided among processes, so that sums are right."""
    return _read_kb(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / 1024


def list_group(process_group: int) -> list[int]:
    """The processes of the group."""
    return [pid for pid in _list_pids() if _find_group(pid) == process_group]


def _list_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _find_group(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
    except OSError:  # the process has ended
        return None


def _status_kb(pid: int, name: str) -> int:
    return _read_kb(Path(f"/proc/{pid}/status"), name)


def _read_kb(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(f"{path} has no {name}")
