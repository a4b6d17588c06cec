"""Request and reply over two topics: produce, consume, produce, consume, each with a bare socket.

`python -m bench.requests.round_trips BOOTSTRAP` is the replying process. Both sides wait in a
fetch, as consumers do, before there is something to read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

from bench.broker.nodes import Node
from bench.broker.processes import cpu_ns
from bench.broker.wire import Wire
from penstock.client.call import compose
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema
from penstock.protocol.records import Record, build_batch

REQUESTS, REPLIES = "bench-asked", "bench-answered"
LONGEST_WAIT = timedelta(seconds=5)
VALUE_BYTES = 100

Sample = dict[str, float]


def measure_round_trips(node: Node, seconds: float) -> Sample:
    producer, consumer = Wire(node.bootstrap), Wire(node.bootstrap)
    command = [sys.executable, "-m", "bench.requests.round_trips", node.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as replying:
        assert replying.stdout is not None
        assert replying.stdout.readline() == b"ready\n", "the replying process failed"
        reader = _Reader(consumer, REPLIES)
        before_ns = cpu_ns(node.pid)
        taken_s = []
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            reader.ask()
            sent_s = time.perf_counter()
            _produce(producer, REQUESTS)
            reader.take()
            taken_s.append(time.perf_counter() - sent_s)
        used_ns = cpu_ns(node.pid) - before_ns
        replying.kill()
    producer.close()
    consumer.close()
    taken_s.sort()
    return {
        "round_trips_per_s": round(len(taken_s) / seconds),
        "cpu_us_per_round_trip": round(used_ns / 1000 / len(taken_s), 1),
        "p50_us": round(taken_s[len(taken_s) // 2] * 1e6),
        "p99_us": round(taken_s[len(taken_s) * 99 // 100] * 1e6),
    }


def create_topics(node: Node) -> None:
    wire = node.connect()
    for topic in (REQUESTS, REPLIES):
        code = wire.create_topic(topic, 1)
        assert code is ErrorCode.NONE, code
        deadline_s = time.monotonic() + 60
        while wire.produce(topic, 0, _batch()) is not ErrorCode.NONE:
            assert time.monotonic() < deadline_s, "no leader for a minute"
            time.sleep(0.05)
    wire.close()


class _Reader:
    """Reads one partition from its end on."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire = wire
        self._topic = topic
        self._offset = _find_end(wire, topic)

    def ask(self) -> None:
        partition = {"partition": 0, "fetch_offset": self._offset, "partition_max_bytes": 1 << 20}
        fields = {
            "max_wait": LONGEST_WAIT,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [{"topic": self._topic, "partitions": [partition]}],
        }
        message = compose(get_request_schema(ApiKey.FETCH, 12), fields)
        self._wire.socket.sendall(
            encode_request_frame(message, correlation_id=1, client_id="bench")
        )

    def take(self) -> None:
        """The one record that was asked for; asks again if the wait has ended without one."""
        while True:
            _, body = read_response_header(self._wire.receive(), ApiKey.FETCH, 12)
            [partition] = decode_response(ApiKey.FETCH, 12, body).responses[0].partitions
            assert not partition.error_code.value, partition.error_code
            if partition.records:
                self._offset += 1
                return
            self.ask()


def _find_end(wire: Wire, topic: str) -> int:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": topic, "partitions": [partition]}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = wire.ask(compose(get_request_schema(ApiKey.LIST_OFFSETS, 4), fields))
    return int(answer.topics[0].partitions[0].offset)


def _produce(wire: Wire, topic: str) -> None:
    data: dict[str, Any] = {
        "name": topic,
        "partition_data": [{"index": 0, "records": _batch()}],
    }
    fields = {"acks": 1, "timeout": timedelta(seconds=30), "topic_data": [data]}
    answer = wire.ask(compose(get_request_schema(ApiKey.PRODUCE, 9), fields))
    assert not answer.responses[0].partition_responses[0].error_code.value


def _batch() -> bytes:
    return bytes(build_batch([Record(0, int(time.time() * 1000), None, bytes(VALUE_BYTES), ())]))


def _reply_for_ever(bootstrap: str) -> None:
    producer, consumer = Wire(bootstrap), Wire(bootstrap)
    reader = _Reader(consumer, REQUESTS)
    print("ready", flush=True)
    while True:
        reader.ask()
        reader.take()
        _produce(producer, REPLIES)


if __name__ == "__main__":
    _reply_for_ever(sys.argv[1])
