"""Accepts connections: limits per broker, address and second, and file descriptor exhaustion.

Not the connections themselves. At max.connections we stop polling the listeners until a connection
closes (no busy loop).
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.network.limits import NetworkLimits
from penstock.network.statistics import Counters
from penstock.purgatory.loop_timers import LoopTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.security.quotas.client_quotas import NO_QUOTAS, ClientQuotas

ACCEPTS_A_TURN = 64
BIND_ATTEMPTS = 8  # to find a port that is free on every address of a host
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    listener: str
    sock: socket.socket
    host: str  # the client's address


class Acceptor:
    """Accepts for all listeners. Owned by the event loop."""

    def __init__(
        self,
        *,
        timers: LoopTimers,
        limits: NetworkLimits,
        counters: Counters,
        admit: Callable[[Accepted], None],
        logger: EventLogger,
        quotas: ClientQuotas = NO_QUOTAS,
    ) -> None:
        self._timers = timers
        self._quotas = quotas
        self._limits = limits
        self._counters = counters
        self._admit = admit
        self._logger = RateLimitedLogger(logger, now_ms=timers.now_ms, add_timer=timers.add_after)
        self._listening: list[tuple[str, socket.socket]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not accepting
        self._by_host: Counter[str] = Counter()  # open connections by client address
        self._count = 0
        self._second = 0
        self._count_of_second = 0
        self._is_delayed = False  # until a timer fires
        # Accepted, but above the creation rate of their addresses: admitted when a timer fires.
        self._early: dict[Accepted, Timer[Callable[[], None]]] = {}

    def bind(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Listen on every address of the host; an empty host means all interfaces."""
        sockets = bind_all(host, port, self._limits)
        self._listening += [(name, sock) for sock in sockets]
        address = sockets[0].getsockname()
        return plain_host(address[0]), int(address[1])

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for name, sock in self._listening:
            loop.add_reader(sock.fileno(), self._on_acceptable, name, sock)

    def close(self) -> None:
        self._pause()
        for _, sock in self._listening:
            sock.close()
        self._listening.clear()
        for accepted, timer in tuple(self._early.items()):
            self._timers.cancel(timer)
            self._drop(accepted)
        self._early.clear()

    def on_closed(self, host: str) -> None:
        """A connection from this address was closed."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._count -= 1
        if self._loop is None and not self._is_delayed and self._listening:
            self.open(asyncio.get_running_loop())

    def _on_acceptable(self, name: str, sock: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._is_full():
                self._pause()
                return
            try:
                accepted, address = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._wait_for_descriptors(error)
                    return
                continue  # the client's network failed, or the client gave up
            self._on_accepted(Accepted(listener=name, sock=accepted, host=plain_host(address[0])))

    def _on_accepted(self, accepted: Accepted) -> None:
        host = accepted.host
        limit = self._limits.connections_of_ip.get(host, self._limits.max_connections_per_ip)
        if self._by_host[host] >= limit:
            self._counters.refused += 1
            accepted.sock.close()
            if not self._by_host[host]:
                del self._by_host[host]
            return
        self._by_host[host] += 1
        self._count += 1
        self._counters.accepted += 1
        if self._quotas.limits_connections:
            self._admit_by_quota(accepted)
        else:
            self._try_admit(accepted)

    def _admit_by_quota(self, accepted: Accepted) -> None:
        """Above the creation rate of its address a connection waits; it is closed if it would wait
        longer than a window, because it holds a descriptor meanwhile."""
        delay_ms = self._quotas.use_connection(accepted.host, self._timers.now_ms())
        if delay_ms > self._quotas.longest_connection_delay_ms:
            self._counters.refused += 1
            self._drop(accepted)
        elif delay_ms:
            admit = partial(self._admit_early, accepted)
            self._early[accepted] = self._timers.add_after(delay_ms, admit)
        else:
            self._try_admit(accepted)

    def _admit_early(self, accepted: Accepted) -> None:
        del self._early[accepted]
        self._try_admit(accepted)

    def _try_admit(self, accepted: Accepted) -> None:
        try:
            self._admit(accepted)
        except OSError:  # some systems refuse options on a socket that was reset meanwhile
            self._drop(accepted)

    def _drop(self, accepted: Accepted) -> None:
        accepted.sock.close()
        self.on_closed(accepted.host)

    def _is_full(self) -> bool:
        """At max.connections: wait for a close. At the creation rate: wait for the next second."""
        if self._count >= self._limits.max_connections:
            return True
        now_ms = self._timers.now_ms()
        if now_ms // 1000 != self._second:
            self._second, self._count_of_second = now_ms // 1000, 0
        if self._count_of_second >= self._limits.max_new_connections_per_second:
            self._resume_at((self._second + 1) * 1000)
            return True
        self._count_of_second += 1
        return False

    def _wait_for_descriptors(self, error: OSError) -> None:
        self._counters.accept_failures += 1
        retry_ms = self._limits.accept_retry_ms
        self._logger.warning(
            "accept_failed",
            "",
            f"cannot accept more than {self._count} connections: {error.strerror}; retrying "
            f"every {retry_ms} ms; raise the limit of open files, or lower max.connections",
        )
        self._pause()
        self._resume_at(self._timers.now_ms() + retry_ms)

    def _resume_at(self, when_ms: int) -> None:
        if not self._is_delayed:
            self._is_delayed = True
            self._timers.add(when_ms, self._resume)

    def _resume(self) -> None:
        self._is_delayed = False
        if self._loop is None and self._listening:
            self.open(asyncio.get_running_loop())

    def _pause(self) -> None:
        """New clients wait in the kernel's backlog."""
        if self._loop is not None:
            for _, sock in self._listening:
                self._loop.remove_reader(sock.fileno())
            self._loop = None


def plain_host(address: str) -> str:
    """The host without the IPv6 form of an IPv4 address, and without the interface."""
    return address.removeprefix("::ffff:").partition("%")[0]


def bind_all(host: str, port: int, limits: NetworkLimits) -> list[socket.socket]:
    """One socket per address, all on one port; OSError with the address if one is taken."""
    for attempt in range(BIND_ATTEMPTS):
        bound: list[socket.socket] = []
        try:
            for family, address in _addresses(host):
                on_port = port or (bound[0].getsockname()[1] if bound else 0)
                bound.append(_listen(family, address, on_port, limits))
            return bound
        except OSError:
            for sock in bound:
                sock.close()
            # Port 0: the port chosen on the first address is taken on another one.
            if port or not bound or attempt == BIND_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _addresses(host: str) -> Iterator[tuple[int, str]]:
    if not host:
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        yield family, ""
        return
    seen: set[str] = set()
    for family, _, _, _, socket_address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        address = str(socket_address[0])
        if address not in seen:
            seen.add(address)
            yield family, address


def _listen(family: int, address: str, port: int, limits: NetworkLimits) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if address else 0)
        # Before `listen`: the window scale is negotiated in the handshake.
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(limits.listen_backlog)
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno, f"cannot listen on {address or 'all addresses'}, port {port}: {error}"
        ) from error
    return sock
