"""Start-up cost before the first row: kernels compiled, loaded from the cache, or not used."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile

PLAIN = "import penstock.spark.codec.decode, penstock.spark.codec.encode"
KERNELS = f"{PLAIN}; from penstock.spark.codec.bulk_path import warm_up; assert warm_up()"
ROUNDS = 3


def measure() -> dict[str, float]:
    """CPU seconds of whole processes."""
    with tempfile.TemporaryDirectory() as kept:
        compiling = _cpu_seconds(KERNELS, kept)
        loading = statistics.median(_cpu_seconds(KERNELS, kept) for _ in range(ROUNDS))
        without = statistics.median(_cpu_seconds(PLAIN, kept) for _ in range(ROUNDS))
    return {
        "kernels_compiled_seconds": round(compiling, 2),
        "kernels_loaded_seconds": round(loading, 2),
        "without_kernels_seconds": round(without, 2),
    }


def _cpu_seconds(script: str, kept: str) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": kept}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
