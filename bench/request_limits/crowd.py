"""`python -m bench.request_limits.crowd BOOTSTRAP CLIENTS FRAME...`: many bad clients.

Each sends one of the frames in these files, waits for the response or for the end of the
connection, and begins again, until standard input ends; then a line of JSON says what became of
their requests. A process of its own, so that it does not slow the measuring client.
"""

import json
import selectors
import socket
import struct
import sys
from collections import Counter
from pathlib import Path

_HOST = "127.0.0.2"  # the well-behaved client has another address
_PIECE_BYTES = 1 << 16


class _BadClient:
    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        self._address = address
        self._frame = frame
        self.counts: Counter[str] = Counter()

    def connect(self, selector: selectors.BaseSelector) -> None:
        self.socket = socket.create_connection(self._address, source_address=(_HOST, 0))
        self.socket.setblocking(False)
        self._begin(selector, is_new=True)

    def _begin(self, selector: selectors.BaseSelector, *, is_new: bool = False) -> None:
        self._left = memoryview(self._frame)
        self._received = 0
        self._size: int | None = None
        self._head = b""
        watch = selector.register if is_new else selector.modify
        watch(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def on_event(self, selector: selectors.BaseSelector, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._left = self._left[self.socket.send(self._left[:_PIECE_BYTES]) :]
                if not self._left:
                    selector.modify(self.socket, selectors.EVENT_READ, self)
            if events & selectors.EVENT_READ:
                self._receive(selector)
        except BlockingIOError:
            return
        except OSError:
            self._reconnect(selector)

    def _receive(self, selector: selectors.BaseSelector) -> None:
        piece = self.socket.recv(_PIECE_BYTES)
        if not piece:
            self._reconnect(selector)
            return
        self._received += len(piece)
        if self._size is None:
            self._head = (self._head + piece)[:4]
            if len(self._head) == 4:
                self._size = 4 + struct.unpack(">i", self._head)[0]
        if self._size is not None and self._received >= self._size:
            self.counts["answered"] += 1
            self._begin(selector)

    def _reconnect(self, selector: selectors.BaseSelector) -> None:
        self.counts["closed"] += 1
        selector.unregister(self.socket)
        self.socket.close()
        self.connect(selector)


def run(bootstrap: str, clients: int, frames: list[bytes]) -> Counter[str]:
    host, port = bootstrap.rsplit(":", 1)
    selector = selectors.DefaultSelector()
    crowd = [_BadClient((host, int(port)), frames[n % len(frames)]) for n in range(clients)]
    for client in crowd:
        client.connect(selector)
    print("connected", flush=True)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    while True:
        for key, events in selector.select():
            if key.data is None:
                return _count(crowd)
            key.data.on_event(selector, events)


def _count(crowd: list[_BadClient]) -> Counter[str]:
    return sum((client.counts for client in crowd), Counter())


if __name__ == "__main__":
    _bootstrap, _clients, *_files = sys.argv[1:]
    _frames = [Path(name).read_bytes() for name in _files]
    print(json.dumps(run(_bootstrap, int(_clients), _frames)))
