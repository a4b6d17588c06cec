"""A million timers: add all, cancel every other one in random order, expire the rest."""

import gc
import random
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any

from bench.measure import ratio
from bench.timers.peers import PEERS, START_MS, Timers

SPREAD_MS = 60_000
STEP_MS = 10  # between calls of advance_to
PHASES = ("add", "cancel", "expire")


def measure(timers: int = 1_000_000, *, rounds: int = 3) -> dict[str, Any]:
    """CPU time, because the machine may be shared; the peers alternate."""
    source = random.Random(1)
    delays = [source.randrange(1, SPREAD_MS) for _ in range(timers)]
    cancelled = source.sample(range(timers), timers // 2)
    seconds: dict[str, dict[str, list[float]]] = {
        phase: {name: [] for name in PEERS} for phase in (*PHASES, "all")
    }
    for _ in range(rounds):
        for name, make in PEERS.items():
            gc.collect()
            spent = _run(make(), delays, cancelled)
            for phase in PHASES:
                seconds[phase][name].append(spent[phase])
            seconds["all"][name].append(sum(spent.values()))
    counts = {"add": timers, "cancel": timers // 2, "expire": timers - timers // 2, "all": timers}
    return {
        "timers": timers,
        **{phase: _compare(seconds[phase], counts[phase]) for phase in seconds},
        "memory_bytes_each": {
            name: _memory(make(), delays, cancelled) for name, make in PEERS.items()
        },
    }


def _run(timers: Timers, delays: list[int], cancelled: list[int]) -> dict[str, float]:
    handles: list[Any] = []
    value = object()

    def add() -> None:
        for delay_ms in delays:
            handles.append(timers.add(START_MS + delay_ms, value))  # noqa: PERF401 - one call each

    def cancel() -> None:
        for number in cancelled:
            timers.cancel(handles[number])

    def expire() -> None:
        expired = 0
        for now_ms in range(START_MS, START_MS + SPREAD_MS + STEP_MS, STEP_MS):
            for _ in timers.advance_to(now_ms):
                expired += 1
        assert expired == len(delays) - len(cancelled)

    return {"add": _seconds(add), "cancel": _seconds(cancel), "expire": _seconds(expire)}


def _seconds(work: Callable[[], None]) -> float:
    start = process_time()
    work()
    return process_time() - start


def _compare(seconds: dict[str, list[float]], count: int) -> dict[str, Any]:
    return {
        "microseconds_heapq": round(min(seconds["heapq"]) / count * 1e6, 3),
        "microseconds_ours": round(min(seconds["ours"]) / count * 1e6, 3),
        "ratio_to_heapq": ratio(seconds["heapq"], seconds["ours"]),
    }


def _memory(timers: Timers, delays: list[int], cancelled: list[int]) -> dict[str, float]:
    """Bytes per added timer, including its deadline but not its value: all pending, then half."""
    handles: list[Any] = [None] * len(delays)
    value = object()
    tracemalloc.start()
    try:
        for number, delay_ms in enumerate(delays):
            handles[number] = timers.add(START_MS + delay_ms, value)
        pending, _ = tracemalloc.get_traced_memory()
        for number in cancelled:
            timers.cancel(handles[number])
            handles[number] = None
        half, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {
        "all_pending": round(pending / len(delays), 1),
        "half_cancelled": round(half / len(delays), 1),
    }
