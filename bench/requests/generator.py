"""`python -m bench.requests.generator BOOTSTRAP CONNECTIONS SECONDS`: small requests, one in flight
per connection.

Standard input brings the request's frame, and the bytes that every response has to have; a line of
JSON tells how many were answered. A process of its own with bare sockets: for a request it costs a
wait, a receive and a send, and nothing is decoded.
"""

from __future__ import annotations

import json
import pickle
import select
import socket
import sys
import time
from typing import NamedTuple

HOST_LOCAL = "127.0.0.1"
RESPONSE_BYTES = 4096


class Load(NamedTuple):
    """What every connection sends, and what its responses look like."""

    frames: list[bytes]  # connection n sends frame n modulo their number, again and again
    response_bytes: int
    error_position: int  # of an error code within the response, which has to be 0


def run(bootstrap: str, connections: int, seconds: float, load: Load) -> dict[str, float]:
    host, port = bootstrap.rsplit(":", 1)
    epoll = select.epoll()
    socks: dict[int, tuple[socket.socket, bytes]] = {}
    for number in range(connections):
        sock = socket.create_connection((host, int(port)), timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        epoll.register(sock.fileno(), select.EPOLLIN)
        socks[sock.fileno()] = sock, load.frames[number % len(load.frames)]
    for sock, frame in socks.values():
        sock.sendall(frame)
    print("connected", flush=True)
    answered, latencies_s = _work(epoll, socks, seconds, load)
    for sock, _ in socks.values():
        sock.close()
    latencies_s.sort()
    return {
        "answered": answered,
        "p50_us": round(latencies_s[len(latencies_s) // 2] * 1e6),
        "p99_us": round(latencies_s[len(latencies_s) * 99 // 100] * 1e6),
    }


def _work(
    epoll: select.epoll, socks: dict[int, tuple[socket.socket, bytes]], seconds: float, load: Load
) -> tuple[int, list[float]]:
    """Latencies are those of the first connection."""
    answered = 0
    latencies_s: list[float] = []
    size, error_at = load.response_bytes, load.error_position
    timed = next(iter(socks))
    sent_s = start_s = time.perf_counter()
    until_s = start_s + seconds
    while True:
        ready = epoll.poll(60)
        now_s = time.perf_counter()
        if now_s >= until_s:
            return answered, latencies_s
        if not ready:
            sys.exit("no response for a minute")
        for fd, _ in ready:
            sock, frame = socks[fd]
            response = sock.recv(RESPONSE_BYTES)
            if len(response) != size or response[error_at] or response[error_at + 1]:
                sys.exit(f"not the response to one produced batch: {response.hex()}")
            sock.send(frame)
            if fd == timed:
                latencies_s.append(now_s - sent_s)
                sent_s = time.perf_counter()
        answered += len(ready)


if __name__ == "__main__":
    described = pickle.load(sys.stdin.buffer)
    bootstrap_, connections_, seconds_ = sys.argv[1:]
    print(json.dumps(run(bootstrap_, int(connections_), float(seconds_), Load(*described))))
