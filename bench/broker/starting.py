"""Start-up time: from the process's start to the first acknowledged message, on an empty
directory."""

from __future__ import annotations

import time
from pathlib import Path

from bench.broker.nodes import Node, NodeFailedError, Prepared
from bench.broker.wire import Wire
from penstock.model.errors import ErrorCode
from penstock.protocol.records import Record, build_batch

TOPIC = "first"
FIRST_ACK_TIMEOUT_S = 60.0


def measure_start(broker: Prepared, directory: Path) -> float:
    """Seconds; formatting the directory and importing the client are excluded."""
    with Node(broker, directory) as node:
        wire = node.connect()
        send_first(wire)
        seconds = time.perf_counter() - node.started_at_s
        wire.close()
    return seconds


def send_first(wire: Wire) -> None:
    """Creates a topic and produces to it as soon as the broker can."""
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"first", ())]))
    deadline = time.perf_counter() + FIRST_ACK_TIMEOUT_S
    created = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    while wire.create_topic(TOPIC, 1) not in created:
        _check(deadline, "the topic was not created")
    while wire.produce(TOPIC, 0, batch) != ErrorCode.NONE:
        _check(deadline, "the message was not acknowledged")


def _check(deadline: float, complaint: str) -> None:
    if time.perf_counter() > deadline:
        raise NodeFailedError(f"{complaint} within {FIRST_ACK_TIMEOUT_S:.0f} s")
    time.sleep(0.001)
