"""Tells a coordinator which partitions of its internal topic this broker leads. Decides nothing."""

from collections.abc import Iterator
from typing import Protocol

from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.replication.metadata_cache import MetadataCache
from penstock.server.context import BrokerContext
from penstock.server.lazy import Lazy


class PartitionCoordinator(Protocol):
    def take_partition(self, partition: int, leader_epoch: int, /) -> None: ...

    def drop_partition(self, partition: int, /) -> None: ...


class CoordinatorLeadership:
    """Call `update` after every metadata update. Owned by the event loop."""

    def __init__(
        self, topic: str, coordinator: PartitionCoordinator, context: BrokerContext
    ) -> None:
        self._topic = topic
        self._coordinator = coordinator
        self._broker_id = context.broker_id
        self._metadata = context.metadata
        self._led: set[int] = set()

    def update(self) -> None:
        led = dict(_led_partitions(self._topic, self._broker_id, self._metadata))
        for partition in self._led.difference(led):
            self._coordinator.drop_partition(partition)
        for partition, leader_epoch in led.items():
            self._coordinator.take_partition(partition, leader_epoch)
        self._led = set(led)


def build_when_leading(coordinator: Lazy[object], topic: str, context: BrokerContext) -> None:
    """Build the coordinator when this broker becomes leader of a partition of the topic.

    The first client request builds it too. Call this before the first metadata update.
    """

    def on_update(update: UpdateMetadataRequest) -> None:
        if not coordinator.is_built and any(
            _led_partitions(topic, context.broker_id, context.metadata)
        ):
            coordinator.get()

    context.metadata.listen(on_update)


def _led_partitions(
    topic: str, broker_id: BrokerId, metadata: MetadataCache
) -> Iterator[tuple[int, int]]:
    """(partition, leader epoch) of those that this broker leads."""
    state = metadata.find_topic(topic)
    partitions = () if state is None else state.partitions
    for partition, partition_state in enumerate(partitions):
        if partition_state.leader == broker_id:
            yield partition, partition_state.leader_epoch
