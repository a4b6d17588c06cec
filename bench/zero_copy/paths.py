"""The three paths side by side: throughput, CPU time and system calls."""

import re
import shutil
import statistics
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from bench.measure import ratio
from bench.zero_copy.reading import Spent, read_slices, serving
from penstock.network.server import SendPath

GB = 1_000_000_000


def measure(
    file: Path, slice_bytes: int, *, rounds: int = 25, total_bytes: int = 64 * 1024 * 1024
) -> dict[str, Any]:
    """Short rounds alternate between three servers; only one is busy at a time."""
    with (
        serving(file, SendPath.COPY) as copy,
        serving(file, SendPath.MMAP) as mapped,
        serving(file, SendPath.SENDFILE) as sendfile,
    ):
        ports = {SendPath.COPY: copy, SendPath.MMAP: mapped, SendPath.SENDFILE: sendfile}
        spent: dict[SendPath, list[Spent]] = {path: [] for path in ports}
        for _ in range(rounds):
            for path, port in ports.items():
                spent[path].append(_read(port, file, slice_bytes, total_bytes))
    calls = {path: count_system_calls(file, path, slice_bytes) for path in SendPath}
    fastest = [round_.seconds for round_ in spent[SendPath.SENDFILE]]
    return {
        "slice_bytes": slice_bytes,
        **{
            path.value: {
                "throughput_ratio_to_sendfile": ratio(
                    fastest, [round_.seconds for round_ in rounds_spent]
                ),
                "mb_per_second": round(
                    total_bytes / 1e6 / min(round_.seconds for round_ in rounds_spent)
                ),
                "cpu_seconds_per_gb": _per_gb(rounds_spent, total_bytes),
                "system_calls_per_gb": calls[path],
            }
            for path, rounds_spent in spent.items()
        },
    }


def _read(port: int, file: Path, slice_bytes: int, total_bytes: int) -> Spent:
    return read_slices(
        port,
        file_bytes=file.stat().st_size,
        slice_bytes=slice_bytes,
        total_bytes=total_bytes,
    )


def _per_gb(spent: list[Spent], total_bytes: int) -> float:
    """The median of the rounds: CPU time hardly depends on other load."""
    return round(statistics.median(round_.cpu_seconds for round_ in spent) * GB / total_bytes, 3)


def count_system_calls(file: Path, path: SendPath, slice_bytes: int) -> dict[str, int] | None:
    """Counts with `strace -c -f`; the calls of start and stop are measured separately and
    subtracted."""
    if shutil.which("strace") is None:
        return None
    some = _count(file, path, slice_bytes, total_bytes=0)
    more = _count(file, path, slice_bytes, total_bytes=GB // 4)
    counts = {name: (more[name] - some.get(name, 0)) * 4 for name in more}
    kept = {name: count for name, count in counts.items() if count > 400}  # fewer calls are noise
    return {"all": sum(kept.values()), **dict(sorted(kept.items(), key=lambda pair: -pair[1]))}


def _count(file: Path, path: SendPath, slice_bytes: int, total_bytes: int) -> dict[str, int]:
    with NamedTemporaryFile(mode="r") as table:
        tracing = ("strace", "-c", "-f", "-o", table.name)
        with serving(file, path, under=tracing) as port:
            _read(port, file, slice_bytes, total_bytes)
        return parse_table(table.read())


def parse_table(table: str) -> dict[str, int]:
    """Lines of `% time, seconds, usecs/call, calls, errors, syscall`; errors may be absent."""
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?([a-z]\w*)$", table, re.MULTILINE)
    return {name: int(calls) for calls, name in rows if name != "total"}
