"""kio's own reader and writer, and the ratio of ours to them."""

import io
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kio.serial import entity_reader, entity_writer

from bench.measure import ratio
from penstock.client.call import compose
from penstock.protocol.schemas import Message


def write_with_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def to_ours(message: Any, schema: type[Message]) -> Message:
    """kio's message as one of ours; `records` must be bytes."""
    made: Message = compose(schema, asdict(message))
    return made


def kio_reader(schema: Any) -> Callable[[bytes], Any]:
    read: Any = entity_reader(schema)
    return lambda body: read(body, 0)


def compare(
    kio: Callable[[], object], ours: Callable[[], object], *, rounds: int, repeats: int
) -> dict[str, Any]:
    """Microseconds of one call each, and how many times faster ours is; rounds take turns."""
    seconds: dict[str, list[float]] = {"kio": [], "our": []}
    for _ in range(rounds):
        seconds["kio"].append(_cpu_seconds(kio, repeats))
        seconds["our"].append(_cpu_seconds(ours, repeats))
    medians = {
        f"{name}_microseconds": round(statistics.median(each) / repeats * 1e6, 2)
        for name, each in seconds.items()
    }
    return {**medians, "ratio": ratio(seconds["kio"], seconds["our"])}


def _cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Of this process alone: nothing here waits, so the neighbours' load must not count."""
    start = time.process_time()
    for _ in range(repeats):
        work()
    return time.process_time() - start
