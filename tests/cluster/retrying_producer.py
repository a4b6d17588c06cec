"""A producer that continues after errors, for topics that are deleted and recreated under it."""

import threading
import time
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer

from penstock.testing import Cluster

_TIMEOUT_S = 180.0


class RetryingProducer:
    """`with RetryingProducer(cluster, topic) as producer:`; it sends numbers to partition 0."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.delivered: list[int] = []
        self.refused = 0
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "linger.ms": 2,
                "delivery.timeout.ms": 2000,
                "topic.metadata.propagation.max.ms": 100,  # instead of the default half minute
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(_TIMEOUT_S)
        assert not self._thread.is_alive()

    def wait_delivered(self, more: int = 50) -> None:
        self._wait(lambda: len(self.delivered), len(self.delivered) + more)

    def wait_refused(self) -> None:
        self._wait(lambda: self.refused, self.refused + 1)

    def _wait(self, read: Any, wanted: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while read() < wanted:
            assert time.monotonic() < deadline, f"{read()} of {wanted}"
            time.sleep(0.01)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._try(number)
            number += 1
            self._producer.poll(0.005)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def _try(self, number: int) -> None:
        try:
            self._producer.produce(
                self._topic, str(number), partition=0, on_delivery=partial(self._note, number)
            )
        except KafkaException:
            self.refused += 1

    def _note(self, number: int, error: Any, _: Any) -> None:
        if error is None:
            self.delivered.append(number)
        else:
            self.refused += 1
