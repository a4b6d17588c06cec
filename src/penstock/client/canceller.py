"""Cancels delayed messages for a producer, over connections of its own: librdkafka has no request
for it."""

import threading

from penstock.client.cluster import ClusterClient
from penstock.client.delayed import Ended
from penstock.client.loop_thread import LoopThread
from penstock.client.security.config import ClientSecurity


class Canceller:
    """Any thread may use it, until `close`."""

    def __init__(self, bootstrap_servers: str, security: ClientSecurity) -> None:
        self._client = ClusterClient(
            bootstrap_servers, client_id="penstock-producer", security=security
        )
        self._loop = LoopThread("penstock producer cancels")
        self._lock = threading.Lock()
        self._is_closed = False

    def cancel(self, topic: str, delay_id: str, timeout_s: float) -> Ended:
        return self._loop.submit(
            lambda: self._client.delayed.cancel(topic, delay_id, timeout_ms=int(timeout_s * 1000))
        ).result()

    def close(self) -> None:
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if not is_closed:
            self._loop.submit(self._client.close).result()
            self._loop.stop()
