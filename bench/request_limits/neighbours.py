"""How long a well-behaved client waits while others send requests filled to their limits."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.broker.nodes import Node, Penstock
from bench.broker.processes import peak_resident_mb, resident_mb
from bench.broker.wire import Wire
from bench.measure import data_home
from bench.request_limits.decoding import Filled
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import encode_request_header
from penstock.protocol.records import Record, build_batch

TOPIC = "healthy"
CLIENTS = 1000
_RECORDS = [Record(number, 1, None, b"x" * 100) for number in range(150)]
_SMALL = bytes(build_batch(_RECORDS[:1]))
_LARGE = bytes(build_batch(_RECORDS))  # 16 KiB, a full batch of Java's


def measure(
    worst: Mapping[ApiKey, Filled], *, seconds: float, crowd_seconds: float
) -> dict[str, Any]:
    with TemporaryDirectory(dir=data_home(), prefix="bench-limits-") as home:
        frames = {key: _write_frame(Path(home), filled) for key, filled in worst.items()}
        with Node(Penstock(), Path(home) / "node") as node:
            wire = node.connect()
            assert wire.create_topic(TOPIC, 1) is ErrorCode.NONE
            results: dict[str, Any] = {"alone": _latencies(wire, _SMALL, seconds)}
            for key, frame in frames.items():
                with _bad_clients(node, 1, [frame]) as counts:
                    results[key.title] = _latencies(wire, _SMALL, seconds)
                results[key.title] |= counts
            before_mb = resident_mb(node.pid)
            with _bad_clients(node, CLIENTS, list(frames.values())) as counts:
                crowd: dict[str, Any] = {
                    "small_batches": _latencies(wire, _SMALL, crowd_seconds / 2),
                    "batches_of_16_kib": _latencies(wire, _LARGE, crowd_seconds / 2),
                }
            crowd |= {**counts, "resident_mb_before": round(before_mb)}
            crowd["peak_resident_mb"] = round(peak_resident_mb(node.pid))
    return {"one_bad_client": results, f"{CLIENTS}_bad_clients": crowd}


def _write_frame(home: Path, filled: Filled) -> Path:
    header = encode_request_header(filled.key, filled.version, 1, "bad")
    path = home / f"{filled.key.name.lower()}.frame"
    size = len(header) + len(filled.body)
    path.write_bytes(size.to_bytes(4, "big") + header + filled.body)
    return path


@contextmanager
def _bad_clients(node: Node, count: int, frames: list[Path]) -> Iterator[dict[str, Any]]:
    """They work while the context is open; then `counts` has what became of their requests."""
    counts: dict[str, Any] = {}
    command = [sys.executable, "-m", "bench.request_limits.crowd", node.bootstrap, str(count)]
    crowd = subprocess.Popen(
        [*command, *map(str, frames)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert crowd.stdout is not None
        assert crowd.stdout.readline().strip() == b"connected"
        yield counts
        assert crowd.stdin is not None
        crowd.stdin.close()
        counts |= {"bad_clients": json.loads(crowd.stdout.readline())}
    finally:
        crowd.kill()
        crowd.wait()


def _latencies(wire: Wire, batch: bytes, seconds: float) -> dict[str, Any]:
    """One batch after another, each acknowledged."""
    taken_ms: list[float] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        started_s = time.perf_counter()
        assert wire.produce(TOPIC, 0, batch) is ErrorCode.NONE
        taken_ms.append((time.perf_counter() - started_s) * 1000)
    taken_ms.sort()
    return {
        "requests": len(taken_ms),
        "p50_ms": round(taken_ms[len(taken_ms) // 2], 2),
        "p99_ms": round(taken_ms[int(len(taken_ms) * 0.99)], 2),
        "max_ms": round(taken_ms[-1], 2),
    }
