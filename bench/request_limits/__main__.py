"""`python -m bench.request_limits [SECONDS [CROWD_SECONDS]]`: prints JSON and writes
bench/results/request_limits.json.

For every API a request that is filled to its limits with the smallest elements: processor time and
memory of decoding it, and of refusing a larger one; then a well-behaved client beside one bad
client of each API, and beside 1,000 of them.
"""

import sys

from bench.measure import write_results
from bench.request_limits import decoding, neighbours

if __name__ == "__main__":
    seconds, crowd_seconds = (float(text) for text in (*sys.argv[1:], "2", "20")[:2])
    costs, worst = decoding.measure()
    write_results(
        "request_limits",
        {
            **decoding.summarize(costs),
            "decoding": costs,
            **neighbours.measure(worst, seconds=seconds, crowd_seconds=crowd_seconds),
        },
    )
