"""kio's own reader and writer, and the comparison with ours."""

import io
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kio.serial import entity_reader, entity_writer

from bench.measure import ratio
from penstock.client.call import compose
from penstock.protocol.schemas import WireMessage


def write_with_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def to_ours(message: Any, schema: type[WireMessage]) -> WireMessage:
    """Converts kio's message to one of ours; `records` must be bytes."""
    converted: WireMessage = compose(schema, asdict(message))
    return converted


def kio_reader(schema: Any) -> Callable[[bytes], Any]:
    read: Any = entity_reader(schema)
    return lambda body: read(body, 0)


def compare(
    kio: Callable[[], object], ours: Callable[[], object], *, rounds: int, calls: int
) -> dict[str, Any]:
    """Microseconds per call, and our speed-up; rounds alternate."""
    seconds: dict[str, list[float]] = {"kio": [], "our": []}
    for _ in range(rounds):
        seconds["kio"].append(_cpu_seconds(kio, calls))
        seconds["our"].append(_cpu_seconds(ours, calls))
    medians = {
        f"{name}_microseconds": round(statistics.median(rounds_s) / calls * 1e6, 2)
        for name, rounds_s in seconds.items()
    }
    return {**medians, "ratio": ratio(seconds["kio"], seconds["our"])}


def _cpu_seconds(work: Callable[[], object], calls: int) -> float:
    """CPU time of this process: nothing here waits, so other load must not count."""
    start = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - start
