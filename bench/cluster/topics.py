"""Topics with a replica on every broker, created and inspected with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker.nodes import NodeFailedError
from bench.cluster.contenders import BROKERS

TIMEOUT_S = 120.0
_POLL_S = 0.1
_SETTINGS = {"min.insync.replicas": "2"}


class Topics:
    """A context manager around an admin client."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._admin  # stops its threads

    def wait_brokers(self) -> None:
        """Waits until all brokers are in the metadata."""
        self._wait(lambda: len(self._metadata(None).brokers) == len(BROKERS), "three brokers")

    def create(self, topic: str, *, partitions: int = 1, leaders: Sequence[int] = BROKERS) -> None:
        """Creates the topic and waits until all replicas are in sync. Partitions cycle through
        `leaders`."""
        assignment = [_led_by(leaders[number % len(leaders)]) for number in range(partitions)]
        new = NewTopic(topic, partitions, replica_assignment=assignment, config=_SETTINGS)
        self._admin.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
        self.wait_in_sync(topic, partitions)

    def wait_in_sync(self, topic: str, partitions: int = 1) -> None:
        def are_in_sync() -> bool:
            return self.count_in_sync(topic) == [len(BROKERS)] * partitions

        self._wait(are_in_sync, f"all replicas of {topic} in sync")

    def count_in_sync(self, topic: str) -> list[int]:
        """The size of each partition's ISR."""
        partitions = self._metadata(topic).topics[topic].partitions
        return [len(partition.isrs) for partition in partitions.values()]

    def find_leader(self, topic: str) -> int:
        return int(self._metadata(topic).topics[topic].partitions[0].leader)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

    def _metadata(self, topic: str | None) -> Any:
        return self._admin.list_topics(topic, timeout=TIMEOUT_S)

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not _holds(is_so):
            if time.monotonic() > deadline:
                raise NodeFailedError(f"timed out after {TIMEOUT_S:.0f} s waiting for {what}")
            time.sleep(_POLL_S)


def _holds(is_so: Callable[[], bool]) -> bool:
    try:
        return is_so()
    except KafkaException:  # no broker responds yet
        return False


def _led_by(leader: int) -> list[int]:
    at = BROKERS.index(leader)
    return [*BROKERS[at:], *BROKERS[:at]]
