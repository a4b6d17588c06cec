"""`python -m bench.deferred [PENDING] [--only PART ...]`: prints JSON, writes it to bench/results.

Parts: `waiting` (throughput, lateness, PENDING messages), `unchanged` (processor time of plain
topics beside the last commit without delays: for a quiet machine), `instructions` (the same,
counted).
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from bench.deferred.broker import measure
from bench.deferred.instructions import measure_instructions
from bench.deferred.unchanged import measure_unchanged
from bench.measure import data_home, write_results

PARTS = ("waiting", "unchanged", "instructions")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.deferred")
    parser.add_argument("pending", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()}
    }
    with tempfile.TemporaryDirectory(prefix="bench-deferred-", dir=data_home()) as folder:
        if "waiting" in arguments.only:
            results |= measure(arguments.pending, folder)
        if "unchanged" in arguments.only:
            results["unchanged"] = measure_unchanged(Path(folder))
        if "instructions" in arguments.only:
            results["instructions"] = measure_instructions(Path(folder))
    name = (
        "deferred" if set(arguments.only) == set(PARTS) else "deferred-" + "-".join(arguments.only)
    )
    write_results(name, results)


if __name__ == "__main__":
    main()
