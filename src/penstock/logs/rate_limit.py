"""Limits the log events that clients can cause: some per event and peer in a minute, then a sum.

`EventRateLimit` decides, with the time as an argument; `RateLimitedLogger` logs. Invariant: both
lines and memory are bounded, however many peers there are.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.logs.event_logger import EventLogger
from penstock.logs.levels import ERROR, INFO, WARNING

WINDOW_MS = 60_000
LINES_PER_PEER = 10
LINES_PER_EVENT = 100  # of all peers together
MAX_PEERS = 1000  # counted one by one; the rest count as one
MAX_PEER_LENGTH = 200  # a group's name may have 32,767 characters


class Suppressed(NamedTuple):
    event: str
    events: int
    peers: int
    busiest: str  # the peer with most of them


class _Window:
    __slots__ = ("admitted", "by_peer", "end_ms", "suppressed")

    def __init__(self, end_ms: int) -> None:
        self.end_ms = end_ms
        self.admitted = 0
        self.by_peer: dict[str, int] = {}
        self.suppressed: dict[str, int] = {}


class EventRateLimit:
    def __init__(self, *, per_peer: int = LINES_PER_PEER, per_event: int = LINES_PER_EVENT) -> None:
        self._per_peer = per_peer
        self._per_event = per_event
        self._windows: dict[str, _Window] = {}  # by event: names of ours, so few

    def admits(self, event: str, peer: str, now_ms: int) -> bool:
        """Take ended windows with `take_suppressed` first."""
        window = self._windows.get(event)
        if window is None:
            window = self._windows[event] = _Window(now_ms + WINDOW_MS)
        peer = peer[:MAX_PEER_LENGTH]
        if peer not in window.by_peer and len(window.by_peer) >= MAX_PEERS:
            peer = "others"
        count = window.by_peer[peer] = window.by_peer.get(peer, 0) + 1
        if count <= self._per_peer and window.admitted < self._per_event:
            window.admitted += 1
            return True
        window.suppressed[peer] = window.suppressed.get(peer, 0) + 1
        return False

    def take_suppressed(self, now_ms: int) -> list[Suppressed]:
        """The sums of windows that have ended; each is returned once."""
        ended = [event for event, window in self._windows.items() if now_ms >= window.end_ms]
        windows = [(event, self._windows.pop(event).suppressed) for event in ended]
        return [_sum_up(event, suppressed) for event, suppressed in windows if suppressed]


def _sum_up(event: str, suppressed: dict[str, int]) -> Suppressed:
    return Suppressed(
        event=event,
        events=sum(suppressed.values()),
        peers=len(suppressed),
        busiest=max(suppressed, key=suppressed.__getitem__),
    )


class RateLimitedLogger:
    """Owned by the event loop. A timer logs the sum even if the events end."""

    def __init__(
        self,
        logger: EventLogger,
        *,
        now_ms: Callable[[], int],
        add_timer: Callable[[int, Callable[[], None]], object],  # after so many ms
        limit: EventRateLimit | None = None,
    ) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._add_timer = add_timer
        self._limit = limit or EventRateLimit()
        self._is_timed = False

    def info(self, event: str, peer: str, message: str = "", /, **fields: object) -> None:
        self.log(INFO, event, peer, message, fields)

    def warning(self, event: str, peer: str, message: str = "", /, **fields: object) -> None:
        self.log(WARNING, event, peer, message, fields)

    def error(self, event: str, peer: str, message: str = "", /, **fields: object) -> None:
        self.log(ERROR, event, peer, message, fields)

    def log(
        self, level: int, event: str, peer: str, message: str, fields: dict[str, object]
    ) -> None:
        if not self._logger.is_enabled(level):
            return
        self._sum_up()
        if self._limit.admits(event, peer, self._now_ms()):
            self._logger.log(level, event, message, fields)
        elif not self._is_timed:
            self._is_timed = True
            self._add_timer(WINDOW_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._is_timed = False
        self._sum_up()

    def _sum_up(self) -> None:
        for suppressed in self._limit.take_suppressed(self._now_ms()):
            self._logger.warning(
                "events_suppressed",
                f"{suppressed.events} more events {suppressed.event} in the last minute were not "
                "logged",
                suppressed_event=suppressed.event,
                count=suppressed.events,
                peers=suppressed.peers,
                busiest=suppressed.busiest,
            )
