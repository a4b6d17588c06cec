"""The client: starts a serving process, reads slices from it, and requests its CPU time."""

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.zero_copy.serving import CPU, HEAD, READ
from penstock.network.server import SendPath

_BUFFER = memoryview(bytearray(1024 * 1024))


class Spent(NamedTuple):
    seconds: float
    cpu_seconds: float  # CPU time of the server


@contextmanager
def serving(
    file: Path,
    path: SendPath,
    *,
    under: Sequence[str] = (),  # a command to run the server under
) -> Iterator[int]:
    command = [*under, sys.executable, "-m", "bench.zero_copy.serving"]
    child = subprocess.Popen(
        [*command, str(file), path.value],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield int(child.stdout.readline())
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def read_slices(port: int, *, file_bytes: int, slice_bytes: int, total_bytes: int) -> Spent:
    """Reads slices one request at a time, like a consumer: through the whole file, then from its
    start again."""
    with _connect(port) as sock:
        cpu_before = _cpu_seconds(sock)
        start = time.perf_counter()
        position = 0
        for _ in range(total_bytes // slice_bytes):
            if position + slice_bytes > file_bytes:
                position = 0
            _read_slice(sock, position, slice_bytes)
            position += slice_bytes
        return Spent(time.perf_counter() - start, _cpu_seconds(sock) - cpu_before)


def _read_slice(sock: socket.socket, position: int, length: int) -> None:
    sock.sendall(struct.pack(">i", READ.size) + READ.pack(b"r", position, length))
    _read(sock, 4 + len(HEAD) + length)


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _cpu_seconds(sock: socket.socket) -> float:
    sock.sendall(struct.pack(">i", 1) + b"c")
    seconds: float = CPU.unpack(sock.recv(CPU.size, socket.MSG_WAITALL))[1]
    return seconds


def _read(sock: socket.socket, count: int) -> None:
    while count:
        received = sock.recv_into(_BUFFER, min(count, len(_BUFFER)))
        if not received:
            raise ConnectionError("the server closed the connection")
        count -= received
