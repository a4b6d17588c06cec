"""A client that sends any bytes over a blocking socket.

It never retries and every wait is bounded, so that tests see how the broker treats this connection.
"""

import itertools
import socket
import struct
from typing import Any, Self

from tests.unit.apis.harness import build

from penstock.apis.registry import APIS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema

PATIENCE_S = 180.0
_NUMBERS = itertools.count(1)


class CutOff(Exception):
    """The broker closed the connection."""


class RawClient:
    def __init__(
        self,
        servers: str,
        *,
        receive_buffer_bytes: int | None = None,
        source_host: str | None = None,
    ) -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if source_host is not None:
            self.socket.bind((source_host, 0))
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # -- bytes -----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Sends all bytes; raises CutOff if the broker closes before the last one."""
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise CutOff(str(error)) from error

    def try_send(self, data: bytes) -> None:
        """Sends as many bytes as the broker accepts."""
        try:
            self.send(data)
        except CutOff:
            return

    def read(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                piece = self.socket.recv(count - len(received))
            except ConnectionError as error:
                raise CutOff(str(error)) from error
            if not piece:
                raise CutOff(f"after {len(received)} of {count} bytes")
            received += piece
        return bytes(received)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def is_cut_off(self) -> bool:
        """Waits for the connection to close; returns False if a byte arrives instead."""
        try:
            self.read(1)
        except CutOff:
            return True
        return False

    def send_no_more(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Disconnects with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # -- requests --------------------------------------------------------------------------

    def ask(self, key: ApiKey, version: int | None = None, /, **values: Any) -> Any:
        """Sends a request and returns the response; `version` defaults to the newest served one."""
        version = APIS[key].versions[-1] if version is None else version
        number = next(_NUMBERS)
        self.send(request_frame(key, version, correlation_id=number, **values))
        return self.read_response(key, version, number)

    def read_response(self, key: ApiKey, version: int, correlation_id: int) -> Any:
        received_id, body = read_response_header(self.read_frame(), key, version)
        assert received_id == correlation_id
        return decode_response(key, version, body)

    def is_served(self) -> bool:
        """Whether this connection still gets responses."""
        return int(self.ask(ApiKey.API_VERSIONS, 0).error_code) == 0


def request_frame(
    key: ApiKey,
    version: int,
    /,
    *,
    correlation_id: int = 0,
    client_id: str | None = "raw",
    **values: Any,
) -> bytes:
    """The whole frame, with its size; other fields have their defaults."""
    message = build(get_request_schema(key, version), values)
    return encode_request_frame(message, correlation_id=correlation_id, client_id=client_id)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
