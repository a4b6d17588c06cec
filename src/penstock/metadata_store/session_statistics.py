"""Counters of a broker's sessions with its metadata store, over all sessions since the start."""

from typing import NamedTuple

from penstock.metadata_store.interface import SessionState
from penstock.model.histogram import NO_DURATIONS, DurationsSnapshot


class SessionStatistics(NamedTuple):
    """Kafka's names: a sync connect is an established connection, first or again."""

    sync_connects: int
    disconnects: int
    expires: int
    latency: DurationsSnapshot = NO_DURATIONS  # of requests; none of the embedded store


class SessionCounters:
    """Listens to every session of the broker in turn. Owned by the event loop."""

    def __init__(self) -> None:
        self._sync_connects = 0
        self._disconnects = 0
        self._expires = 0

    def on_opened(self) -> None:
        self._sync_connects += 1

    def on_state(self, state: SessionState) -> None:
        self._sync_connects += state is SessionState.CONNECTED
        self._disconnects += state is SessionState.SUSPENDED

    def on_expired(self) -> None:
        self._expires += 1

    def statistics(self, latency: DurationsSnapshot) -> SessionStatistics:
        return SessionStatistics(
            sync_connects=self._sync_connects,
            disconnects=self._disconnects,
            expires=self._expires,
            latency=latency,
        )
