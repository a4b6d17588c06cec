"""`python -m bench.zero_copy`: prints JSON, writes bench/results/zero_copy.json and a chart."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import RESULTS, write_results
from bench.plot import bar_chart
from bench.zero_copy import paths
from penstock.network.server import SendPath

FILE_BYTES = 256 * 1024 * 1024


def _measure() -> dict[str, Any]:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "00000000000000000000.log"
        file.write_bytes(os.urandom(1024 * 1024) * (FILE_BYTES // (1024 * 1024)))
        return {
            "counted_with": "strace -c -f, of the serving process, a quarter of a GB",
            "paths": [paths.measure(file, size) for size in (64 * 1024, 1024 * 1024)],
        }


def _plot(results: dict[str, Any]) -> None:
    """Charts everything relative to sendfile, for the larger slices."""
    measured_paths = results["paths"][-1]
    groups: dict[str, dict[str, float]] = {"throughput": {}, "CPU time": {}, "system calls": {}}
    base = measured_paths["sendfile"]
    for path in (path.value for path in SendPath):
        ours = measured_paths[path]
        groups["throughput"][path] = ours["throughput_ratio_to_sendfile"]["median"]
        groups["CPU time"][path] = ours["cpu_seconds_per_gb"] / base["cpu_seconds_per_gb"]
        if base["system_calls_per_gb"]:
            calls = ours["system_calls_per_gb"]["all"] / base["system_calls_per_gb"]["all"]
            groups["system calls"][path] = calls
    if not groups["system calls"]:
        del groups["system calls"]
    title = f"Sending file slices of {measured_paths['slice_bytes'] // 1024} KiB"
    bar_chart(RESULTS / "zero_copy.svg", title, groups, "relative to sendfile")


if __name__ == "__main__":
    measured = _measure()
    write_results("zero_copy", measured)
    _plot(measured)
