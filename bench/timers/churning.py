"""A busy broker: each request sets a 30 s timer and cancels it with the response."""

import gc
import tracemalloc
from collections import deque
from time import process_time
from typing import Any

from bench.measure import ratio
from bench.timers.peers import PEERS, START_MS, Timers

TIMEOUT_MS = 30_000
REQUESTS_A_MS = 20
IN_FLIGHT = 1000


def measure(requests: int = 1_000_000, *, rounds: int = 3) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in PEERS}
    for _ in range(rounds):
        for name, make in PEERS.items():
            gc.collect()
            timers = make()
            start = process_time()
            _churn(timers, requests)
            seconds[name].append(process_time() - start)
    return {
        "requests": requests,
        "microseconds_heapq": round(min(seconds["heapq"]) / requests * 1e6, 3),
        "microseconds_ours": round(min(seconds["ours"]) / requests * 1e6, 3),
        "ratio_to_heapq": ratio(seconds["heapq"], seconds["ours"]),
        "peak_memory_bytes": {name: _peak_memory(make(), requests) for name, make in PEERS.items()},
    }


def _churn(timers: Timers, requests: int) -> None:
    in_flight: deque[Any] = deque()
    value = object()
    for number in range(requests):
        now_ms = START_MS + number // REQUESTS_A_MS
        if number % REQUESTS_A_MS == 0:
            assert not list(timers.advance_to(now_ms)), "no timer expires"
        in_flight.append(timers.add(now_ms + TIMEOUT_MS, value))
        if len(in_flight) > IN_FLIGHT:
            timers.cancel(in_flight.popleft())


def _peak_memory(timers: Timers, requests: int) -> int:
    tracemalloc.start()
    try:
        _churn(timers, requests)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
