"""A bare connection to any broker: one request at a time, no retries."""

from __future__ import annotations

import socket
import struct
from datetime import timedelta
from typing import Any

from penstock.client.call import compose
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema

TIMEOUT_S = 60.0
REQUEST_TIMEOUT = timedelta(seconds=30)
_SIZE = struct.Struct(">i")


class Wire:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def close(self) -> None:
        self.socket.close()

    def ask(self, message: Any) -> Any:
        """Sends a request and waits for the response, whose records are views until the next
        call."""
        self.socket.sendall(encode_request_frame(message, correlation_id=1, client_id="bench"))
        key, version = message.__api_key__, message.__version__
        _, body = read_response_header(self.receive(), key, version)
        return decode_response(key, version, body)

    def receive(self) -> memoryview:
        """The next frame without its size, in a buffer that the next call reuses."""
        self._fill(4)
        (size,) = _SIZE.unpack_from(self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(size * 2)
        self._fill(size)
        return memoryview(self._buffer)[:size]

    def _fill(self, count: int) -> None:
        view = memoryview(self._buffer)
        filled = 0
        while filled < count:
            received = self.socket.recv_into(view[filled:count])
            if not received:
                raise ConnectionError(f"closed by the broker after {filled} of {count} bytes")
            filled += received

    def create_topic(self, name: str, partitions: int) -> ErrorCode:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        fields = {"topics": [topic], "timeout": REQUEST_TIMEOUT}
        answer = self.ask(compose(get_request_schema(ApiKey.CREATE_TOPICS, 5), fields))
        return get_error(answer.topics[0].error_code)

    def delete_topic(self, name: str) -> None:
        fields = {"topic_names": [name], "timeout": REQUEST_TIMEOUT}
        self.ask(compose(get_request_schema(ApiKey.DELETE_TOPICS, 4), fields))

    def produce(self, topic: str, partition: int, batch: bytes) -> ErrorCode:
        """Produces one batch with acks=all."""
        data = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
        fields = {"acks": -1, "timeout": REQUEST_TIMEOUT, "topic_data": [data]}
        answer = self.ask(compose(get_request_schema(ApiKey.PRODUCE, 9), fields))
        return get_error(answer.responses[0].partition_responses[0].error_code)
