"""`python -m bench.validation`: prints JSON and writes bench/results/validation.json.

One broker, two topics, one with `penstock.validate.records=false`. Rounds alternate between them:
batches of 100-byte records, many requests in flight. The broker takes 90 % of a core while it is
measured, so its CPU time for each batch is what throughput follows. Both builds are measured: the
plain one, and the compiled one of `tools/compile_modules.py` in a directory of its own.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.compile_modules import compile_modules, listed_modules

from bench.broker.nodes import Node, Penstock
from bench.broker.processes import cpu_seconds
from bench.broker.wire import REQUEST_TIMEOUT, Wire
from bench.measure import data_home, write_results
from penstock.client.call import compose
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.compression import Codec
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema
from penstock.protocol.records import Record, build_batch

ROUNDS = 9
RECORDS = 150  # per batch: 16 KB, the default batch.size of the Java producer
REQUESTS = {"compiled": 3000, "plain": 300}  # many, because CPU time is counted in steps of 10 ms
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
CHECKED, UNCHECKED = "checked", "unchecked"
_VERSION = 9


def measure() -> dict[str, Any]:
    with TemporaryDirectory(dir=data_home(), prefix="bench-validation-") as home:
        compile_modules(Path(home) / "compiled", listed_modules())
        results = {build: _measure_build(build, Path(home)) for build in ("compiled", "plain")}
    return {"record_bytes": 100, "records_in_a_batch": RECORDS, **results}


def _measure_build(build: str, home: Path) -> dict[str, Any]:
    with _sources_first(home / "compiled" if build == "compiled" else None):
        node = Node(Penstock(), home / f"node-{build}")
        with node:
            wire = node.connect()
            _create(wire)
            return {
                codec.name.lower(): _measure_codec(node, wire, codec, REQUESTS[build])
                for codec in CODECS
            }


def _measure_codec(node: Node, wire: Wire, codec: Codec, requests: int) -> dict[str, Any]:
    cpu_us: dict[str, list[float]] = {CHECKED: [], UNCHECKED: []}
    wall_us: dict[str, list[float]] = {CHECKED: [], UNCHECKED: []}
    for number in range(ROUNDS + 1):
        for topic in (CHECKED, UNCHECKED) if number % 2 else (UNCHECKED, CHECKED):
            cpu, wall = _produce(node, wire, _frame(topic, codec), requests)
            if number:  # the first round warms up
                cpu_us[topic].append(cpu / requests * 1e6)
                wall_us[topic].append(wall / requests * 1e6)
    return {"cpu_us_per_batch": _compare(cpu_us), "wall_us_per_batch": _compare(wall_us)}


def _compare(samples: dict[str, list[float]]) -> dict[str, float]:
    """Throughput of the checked topic relative to the unchecked one, by median and by best."""
    medians = {topic: statistics.median(values) for topic, values in samples.items()}
    best = {topic: min(values) for topic, values in samples.items()}
    return {
        **{topic: round(value, 1) for topic, value in medians.items()},
        "throughput_ratio": round(medians[UNCHECKED] / medians[CHECKED], 3),
        "throughput_ratio_of_best": round(best[UNCHECKED] / best[CHECKED], 3),
    }


def _produce(node: Node, wire: Wire, frame: bytes, requests: int) -> tuple[float, float]:
    """CPU seconds of the broker and seconds until the last response."""

    def send() -> None:
        for _ in range(requests):
            wire.socket.sendall(frame)

    sender = threading.Thread(target=send)
    cpu, start = cpu_seconds(node.pid), time.perf_counter()
    sender.start()
    for _ in range(requests):
        answer = wire.receive()
    wall = time.perf_counter() - start
    cpu = cpu_seconds(node.pid) - cpu
    sender.join()
    _, body = read_response_header(answer, ApiKey.PRODUCE, _VERSION)
    reply = decode_response(ApiKey.PRODUCE, _VERSION, body)
    code = get_error(reply.responses[0].partition_responses[0].error_code)
    assert code is ErrorCode.NONE, code
    return cpu, wall


def _create(wire: Wire) -> None:
    off = {"name": "penstock.validate.records", "value": "false"}
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        for name, configs in ((CHECKED, []), (UNCHECKED, [off]))
    ]
    schema = get_request_schema(ApiKey.CREATE_TOPICS, 5)
    answer = wire.ask(compose(schema, {"topics": topics, "timeout": REQUEST_TIMEOUT}))
    assert [topic.error_code for topic in answer.topics] == [0, 0], answer


def _frame(topic: str, codec: Codec) -> bytes:
    """Values that compress about four times, as text does."""
    seeded = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    words = [bytes(seeded.choices(b"abcdefghijklmnop", k=6)) for _ in range(300)]
    records = [
        Record(index, now_ms + index // 10, None, b" ".join(seeded.choices(words, k=15))[:100])
        for index in range(RECORDS)
    ]
    batch = bytes(build_batch(records, codec=codec))
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    fields = {"acks": -1, "timeout": REQUEST_TIMEOUT, "topic_data": [data]}
    message = compose(get_request_schema(ApiKey.PRODUCE, _VERSION), fields)
    return encode_request_frame(message, correlation_id=1, client_id="bench")


@contextmanager
def _sources_first(directory: Path | None) -> Iterator[None]:
    """Puts this directory first on the import path of brokers that are started meanwhile."""
    before = os.environ.get("PYTHONPATH")
    if directory is not None:
        os.environ["PYTHONPATH"] = str(directory)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        else:
            os.environ.pop("PYTHONPATH", None)


if __name__ == "__main__":
    write_results("validation", measure())
