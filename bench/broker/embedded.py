"""From `penstock.Broker()` to the first acknowledged message, with all modules imported.

`python -m bench.broker.embedded` prints the seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time

import penstock
from bench.broker.starting import send_first
from bench.broker.wire import Wire

TIMEOUT_S = 60


def measure_embedded() -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.broker.embedded"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
    )
    return float(done.stdout)


def _main() -> None:
    make = penstock.Broker  # imported before the clock starts
    start = time.perf_counter()
    with make() as broker:
        wire = Wire(broker.bootstrap_servers)
        send_first(wire)
        seconds = time.perf_counter() - start
        wire.close()
    print(seconds)


if __name__ == "__main__":
    _main()
