"""`python -m bench.zero_copy [server|broker]`: prints JSON, writes bench/results and charts.

`server` is the network server with file slices (zero_copy.json), `broker` are whole brokers that
differ in `send.method` (zero_copy_broker.json). Without an argument both are measured.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import RESULTS, write_results
from bench.plot import bar_chart
from bench.zero_copy import on_broker, paths
from penstock.network.server import SendPath

FILE_BYTES = 256 * 1024 * 1024
SIZES = (64 * 1024, 1024 * 1024)


def _measure_server() -> dict[str, Any]:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "00000000000000000000.log"
        file.write_bytes(os.urandom(1024 * 1024) * (FILE_BYTES // (1024 * 1024)))
        return {
            "counted_with": "strace -c -f, of the serving process, a quarter of a GB",
            "paths": [paths.measure(file, size) for size in SIZES],
        }


def _measure_broker() -> dict[str, Any]:
    return {
        "counted_with": "strace -c -f, of the broker, a quarter of a GB",
        "paths": [on_broker.measure(size) for size in SIZES],
    }


def _plot(name: str, title: str, results: dict[str, Any]) -> None:
    """Charts everything relative to sendfile, for the larger slices."""
    measured_paths = results["paths"][-1]
    groups: dict[str, dict[str, float]] = {"throughput": {}, "CPU time": {}, "system calls": {}}
    base = measured_paths["sendfile"]
    for path in (path.value for path in SendPath):
        ours = measured_paths[path]
        groups["throughput"][path] = ours["throughput_ratio_to_sendfile"]["median"]
        groups["CPU time"][path] = ours["cpu_seconds_per_gb"] / base["cpu_seconds_per_gb"]
        if base["system_calls_per_gb"] and ours["system_calls_per_gb"]:
            calls = ours["system_calls_per_gb"]["all"] / base["system_calls_per_gb"]["all"]
            groups["system calls"][path] = calls
    if not groups["system calls"]:
        del groups["system calls"]
    bar_chart(RESULTS / f"{name}.svg", title, groups, "relative to sendfile")


def _main(what: str) -> None:
    if what in ("", "server"):
        measured = _measure_server()
        write_results("zero_copy", measured)
        _plot("zero_copy", f"Sending file slices of {SIZES[-1] // 1024} KiB", measured)
    if what in ("", "broker"):
        measured = _measure_broker()
        write_results("zero_copy_broker", measured)
        _plot("zero_copy_broker", f"A broker's fetches of {SIZES[-1] // 1024} KiB", measured)


if __name__ == "__main__":
    _main(sys.argv[1] if len(sys.argv) > 1 else "")
