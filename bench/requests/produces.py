"""A round of small produces against one broker."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from datetime import timedelta

from bench.broker.nodes import Node
from bench.broker.processes import cpu_ns
from bench.requests.generator import Load
from penstock.client.call import compose
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import get_request_schema
from penstock.protocol.records import Record, build_batch

TOPIC = "small-requests"
PARTITIONS = 12
CONNECTIONS = [64, 500]
VERSION = 9
VALUE_BYTES = 100

Sample = dict[str, float]

# Size, correlation id, tags; topics, name with its length, partitions, index: then the error code.
_BEFORE_ERROR = 4 + 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
# Error code, offset, append time, log start offset, record errors, message, tags; the topic tags,
# throttle time, tags.
_RESPONSE_BYTES = _BEFORE_ERROR + 2 + 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1


def create_topic(node: Node) -> None:
    wire = node.connect()
    code = wire.create_topic(TOPIC, PARTITIONS)
    assert code is ErrorCode.NONE, code
    deadline_s = time.monotonic() + 60
    while wire.produce(TOPIC, PARTITIONS - 1, _batch()) is not ErrorCode.NONE:
        assert time.monotonic() < deadline_s, "no leader for a minute"
        time.sleep(0.05)
    wire.close()


def measure_produces(node: Node, connections: int, seconds: float) -> Sample:
    load = Load([_frame(index) for index in range(PARTITIONS)], _RESPONSE_BYTES, _BEFORE_ERROR)
    command = [sys.executable, "-m", "bench.requests.generator", node.bootstrap]
    with subprocess.Popen(
        [*command, str(connections), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as generator:
        assert generator.stdin is not None
        assert generator.stdout is not None
        pickle.dump(tuple(load), generator.stdin)
        generator.stdin.close()
        assert generator.stdout.readline() == b"connected\n", "the generator failed"
        before_ns, start_s = cpu_ns(node.pid), time.perf_counter()
        line = generator.stdout.readline()
        elapsed_s, used_ns = time.perf_counter() - start_s, cpu_ns(node.pid) - before_ns
    answered = json.loads(line)
    return {
        "requests_per_s": round(answered["answered"] / elapsed_s),
        "cpu_us_per_request": round(used_ns / 1000 / answered["answered"], 1),
        "p50_us": answered["p50_us"],
        "p99_us": answered["p99_us"],
    }


def _frame(index: int) -> bytes:
    data = {"name": TOPIC, "partition_data": [{"index": index, "records": _batch()}]}
    fields = {"acks": 1, "timeout": timedelta(seconds=30), "topic_data": [data]}
    message = compose(get_request_schema(ApiKey.PRODUCE, VERSION), fields)
    return encode_request_frame(message, correlation_id=1, client_id="bench")


def _batch() -> bytes:
    return bytes(build_batch([Record(0, int(time.time() * 1000), None, bytes(VALUE_BYTES), ())]))
