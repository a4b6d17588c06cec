"""`python -m bench.validation`: prints JSON and writes bench/results/validation.json.

One broker, two topics, one with `penstock.validate.records=false`. Batches of 100-byte records,
many requests in flight, compressed as clients do it. The broker takes 90 % of a core while it is
measured, so its CPU time for each batch is what throughput follows. Short rounds alternate between
the topics, and each is compared with its neighbour: on a shared machine the speed of a core drifts
by a third within seconds. Then librdkafka produces to both topics, as users do. Both builds are
measured: the plain one, and the compiled one of `tools/compile_modules.py` in a directory of its
own.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cramjam
from tools.compile_modules import compile_modules, listed_modules

from bench.broker.nodes import Node, Penstock
from bench.broker.processes import cpu_ns
from bench.broker.wire import REQUEST_TIMEOUT, Wire
from bench.measure import data_home, write_results
from bench.validation.producer import make_values, measure_producer
from penstock.client.call import compose
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    compute_crc,
    read_header,
)
from penstock.protocol.compression import Codec
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema
from penstock.protocol.records import Record, build_batch

ROUNDS = 100  # of each topic
WARM_UP_ROUNDS = 5
RECORDS = 150  # per batch: 16 KB, the default batch.size of the Java producer
REQUESTS = {"compiled": 300, "plain": 100}  # in a round
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
CHECKED, UNCHECKED = "checked", "unchecked"
LZ4_HEADER = bytes.fromhex("04224d18604082")  # independent blocks of 64 KiB, no checksums
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
                | {"producer": measure_producer(node.bootstrap, codec, CHECKED, UNCHECKED)}
                for codec in CODECS
            }


def _measure_codec(node: Node, wire: Wire, codec: Codec, requests: int) -> dict[str, Any]:
    cpu_us: dict[str, list[float]] = {CHECKED: [], UNCHECKED: []}
    wall_us: dict[str, list[float]] = {CHECKED: [], UNCHECKED: []}
    frames = {topic: _frame(topic, codec) for topic in cpu_us}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for topic in (CHECKED, UNCHECKED) if number % 2 else (UNCHECKED, CHECKED):
            cpu_ns, wall_ns = _produce(node, wire, frames[topic], requests)
            if number >= WARM_UP_ROUNDS:
                cpu_us[topic].append(cpu_ns / requests / 1e3)
                wall_us[topic].append(wall_ns / requests / 1e3)
    return {"cpu_us_per_batch": _compare(cpu_us), "wall_us_per_batch": _compare(wall_us)}


def _compare(samples: dict[str, list[float]]) -> dict[str, float]:
    """Medians, quickest tenths, and the throughput of the checked topic relative to the other: the
    median over pairs of neighbouring rounds, and of the quickest tenths, which others disturb
    least."""
    pairs = zip(samples[UNCHECKED], samples[CHECKED], strict=True)
    quick = {topic: statistics.quantiles(values, n=10)[0] for topic, values in samples.items()}
    return {
        **{topic: round(statistics.median(values), 1) for topic, values in samples.items()},
        **{f"{topic}_quickest_tenth": round(value, 1) for topic, value in quick.items()},
        "throughput_ratio": round(statistics.median(off / on for off, on in pairs), 3),
        "throughput_ratio_quickest_tenth": round(quick[UNCHECKED] / quick[CHECKED], 3),
    }


def _produce(node: Node, wire: Wire, frame: bytes, requests: int) -> tuple[int, int]:
    """Nanoseconds of the broker's CPU time, and until the last response."""

    def send() -> None:
        for _ in range(requests):
            wire.socket.sendall(frame)

    sender = threading.Thread(target=send)
    cpu_before, began = cpu_ns(node.pid), time.perf_counter_ns()
    sender.start()
    for _ in range(requests):
        answer = wire.receive()
    wall = time.perf_counter_ns() - began
    cpu = cpu_ns(node.pid) - cpu_before
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
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(index, now_ms + index // 10, None, value)
        for index, value in enumerate(make_values(RECORDS))
    ]
    batch = _compressed(build_batch(records), codec)
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    fields = {"acks": -1, "timeout": REQUEST_TIMEOUT, "topic_data": [data]}
    message = compose(get_request_schema(ApiKey.PRODUCE, _VERSION), fields)
    return encode_request_frame(message, correlation_id=1, client_id="bench")


def _compressed(batch: bytearray, codec: Codec) -> bytes:
    """The batch with the frame that Java's clients and librdkafka write: lz4 without checksums,
    zstd with a window of 2 MiB and no content size."""
    content = bytes(batch[HEADER_BYTES:])
    if codec is Codec.LZ4:
        block = bytes(cramjam.lz4.compress_block(content, store_size=False))
        content = LZ4_HEADER + len(block).to_bytes(4, "little") + block + bytes(4)
    elif codec is Codec.ZSTD:
        encoder = cramjam.zstd.Compressor()
        encoder.compress(content)
        content = bytes(encoder.finish())
    sent = bytearray(batch[:HEADER_BYTES] + content)
    header = read_header(sent)._replace(batch_length=len(sent) - LOG_OVERHEAD, attributes=codec)
    HEADER.pack_into(sent, 0, *header)
    HEADER.pack_into(sent, 0, *header._replace(crc=compute_crc(sent)))
    return bytes(sent)


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
