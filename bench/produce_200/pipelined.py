"""The request to a running broker over one connection, many in flight."""

from __future__ import annotations

import threading
from time import perf_counter

from bench.broker.nodes import Node
from bench.broker.processes import cpu_seconds
from bench.broker.wire import Wire
from bench.produce_200.request import PARTITIONS, TOPIC, VERSION, make_frame, make_message
from penstock.model.errors import ErrorCode
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response


def create_topic(wire: Wire) -> None:
    code = wire.create_topic(TOPIC, PARTITIONS)
    if code != ErrorCode.NONE:
        raise RuntimeError(f"{TOPIC} was not created: {code.name}")


def measure_pipelined(node: Node, wire: Wire, requests: int) -> dict[str, float]:
    """Microseconds per partition: until the last response, and CPU time of the broker."""
    frame = make_frame()
    sender = threading.Thread(target=_send, args=(wire, frame, requests))
    cpu_start, start = cpu_seconds(node.pid), perf_counter()
    sender.start()
    for _ in range(requests):
        answer = wire.receive()
    wall = perf_counter() - start
    cpu = cpu_seconds(node.pid) - cpu_start
    sender.join()
    _check(answer)
    count = requests * PARTITIONS
    return {"wall_us": wall / count * 1e6, "cpu_us": cpu / count * 1e6}


def _send(wire: Wire, frame: bytes, requests: int) -> None:
    for _ in range(requests):
        wire.socket.sendall(frame)


def _check(answer: memoryview) -> None:
    """Checks that every partition of the last response succeeded."""
    key = make_message().__api_key__
    _, body = read_response_header(answer, key, VERSION)
    partitions = decode_response(key, VERSION, body).responses[0].partition_responses
    failed = [partition for partition in partitions if partition.error_code.value]
    if failed or len(partitions) != PARTITIONS:
        raise RuntimeError(f"{len(failed)} of {len(partitions)} partitions failed: {failed[:2]}")
