"""A TCP proxy that cuts one connection at the worst moment: certainly then, never by luck.

BEFORE_APPEND: the request that has the unlucky words never reaches the broker. BEFORE_ANSWER: the
broker gets it, no answer passes any more, and once the record is in the log the connection ends.
Right before it ends, whoever asked for the cut may kill the process at either side.
"""

import enum
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 64 * 1024


class Cut(enum.Enum):
    BEFORE_APPEND = "before the append"
    BEFORE_ANSWER = "before the answer"


class CuttingProxy:
    """Listens from the start; `forward_to` says where the broker is."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._broker = ("127.0.0.1", 0)
        self._words = b""
        self._cut = Cut.BEFORE_APPEND
        self._wait_appended: Callable[[], None] = _never
        self._kill: Callable[[], None] = _nothing
        self._is_cut = threading.Event()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def forward_to(self, port: int) -> None:
        self._broker = ("127.0.0.1", port)

    def cut_once(
        self,
        cut: Cut,
        words: bytes,
        wait_appended: Callable[[], None],
        kill: Callable[[], None] | None = None,
    ) -> None:
        """Cut the next connection that carries these words to the broker; `wait_appended` returns
        when the record is in the log, `kill` ends a process while its connection still stands."""
        self._cut, self._words, self._wait_appended = cut, words, wait_appended
        self._kill = kill or _nothing
        self._is_cut.clear()

    def wait_cut(self, timeout_s: float) -> None:
        assert self._is_cut.wait(timeout_s), "nothing was cut"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=[client], daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._broker) as broker:
            answers = _Answers(broker, client)
            answers.start()
            while data := client.recv(_CHUNK_BYTES):
                if not self._is_unlucky(data):
                    broker.sendall(data)
                    continue
                if self._cut is Cut.BEFORE_ANSWER:
                    answers.swallow.set()
                    broker.sendall(data)
                    self._wait_appended()
                self._kill()
                self.cuts += 1
                self._is_cut.set()
                return

    def _is_unlucky(self, data: bytes) -> bool:
        """Only once: what is sent again passes."""
        if not self._words or self._words not in data:
            return False
        self._words = b""
        return True


class _Answers(threading.Thread):
    """Passes answers to the client, until they are swallowed."""

    def __init__(self, broker: socket.socket, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._client = client
        self.swallow = threading.Event()

    def run(self) -> None:
        with suppress(OSError):
            while data := self._broker.recv(_CHUNK_BYTES):
                if not self.swallow.is_set():
                    self._client.sendall(data)
            self._client.shutdown(socket.SHUT_RDWR)


def _nothing() -> None:
    """The connection alone is cut."""


def _never() -> None:
    raise AssertionError("nothing is to be cut yet")
