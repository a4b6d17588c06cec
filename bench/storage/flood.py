"""Produce requests of one batch for one partition each, over several connections, many in flight.

Invariant: every response is checked; a failed one ends the measurement.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from datetime import timedelta

from penstock.client.call import compose
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import get_request_schema

_VERSION = 8  # the last one whose response has its error at a fixed place
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_DEADLINE_S = 120.0
_RECEIVED_BYTES = 1 << 18


class RefusedError(Exception):
    """A partition refused a batch, maybe because it has no leader yet."""


def make_frame(topic: str, partition: int, batch: bytes) -> bytes:
    data = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
    fields = {"acks": 1, "timeout": timedelta(seconds=60), "topic_data": [data]}
    message = compose(get_request_schema(ApiKey.PRODUCE, _VERSION), fields)
    return encode_request_frame(message, correlation_id=1, client_id="bench")


class _Sender:
    """One connection with its share of the requests."""

    def __init__(self, bootstrap: str, frames: Sequence[bytes], in_flight: int) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=_DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._in_flight = in_flight
        self._sent = self._answered = 0
        self._received = bytearray()

    @property
    def is_done(self) -> bool:
        return self._answered == len(self._frames)

    def send(self) -> None:
        upto = min(self._answered + self._in_flight, len(self._frames))
        if upto > self._sent:
            self.socket.sendall(b"".join(self._frames[self._sent : upto]))
            self._sent = upto

    def receive(self) -> None:
        part = self.socket.recv(_RECEIVED_BYTES)
        if not part:
            raise ConnectionError(f"closed after {self._answered} of {len(self._frames)} responses")
        self._received += part
        start = 0
        while len(self._received) - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received, start)
            end = start + _SIZE.size + size
            if len(self._received) < end:
                break
            _check(memoryview(self._received)[start + _SIZE.size : end])
            self._answered += 1
            start = end
        del self._received[:start]


def _check(response: memoryview) -> None:
    """Correlation id, one topic with its name, one partition with its index and error."""
    name_at = 4 + 4
    (name_bytes,) = _ERROR.unpack_from(response, name_at)
    (code,) = _ERROR.unpack_from(response, name_at + 2 + name_bytes + 4 + 4)
    if code != ErrorCode.NONE.value:
        raise RefusedError(f"a request failed with {get_error(code).name}")


def flood(bootstrap: str, frames: Sequence[bytes], *, connections: int, in_flight: int) -> float:
    """Seconds until the last response. So many requests of each connection are under way."""
    connections = min(connections, len(frames))
    senders = [
        _Sender(bootstrap, frames[number::connections], in_flight) for number in range(connections)
    ]
    poll = select.epoll()
    by_descriptor = {sender.socket.fileno(): sender for sender in senders}
    try:
        started_s = time.perf_counter()
        for descriptor, sender in by_descriptor.items():
            poll.register(descriptor, select.EPOLLIN)
            sender.send()
        while not all(sender.is_done for sender in senders):
            ready = poll.poll(_DEADLINE_S)
            if not ready:
                raise TimeoutError(f"no response for {_DEADLINE_S:.0f} s")
            for descriptor, _ in ready:
                by_descriptor[descriptor].receive()
                by_descriptor[descriptor].send()
        return time.perf_counter() - started_s
    finally:
        poll.close()
        for sender in senders:
            sender.socket.close()
