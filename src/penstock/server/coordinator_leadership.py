"""Tells a coordinator which partitions of its topic this broker leads. Decides nothing."""

from typing import Protocol

from penstock.model.cluster import BrokerId
from penstock.replication.metadata_cache import MetadataCache


class TakesPartitions(Protocol):
    def take_partition(self, partition: int, leader_epoch: int, /) -> None: ...

    def drop_partition(self, partition: int, /) -> None: ...


class CoordinatorLeadership:
    """Owned by the event loop; `tell` after every update of the view."""

    def __init__(self, topic: str, broker_id: BrokerId, cluster: MetadataCache) -> None:
        self._topic = topic
        self._broker_id = broker_id
        self._cluster = cluster
        self._led: set[int] = set()

    def tell(self, coordinator: TakesPartitions) -> None:
        topic = self._cluster.find_topic(self._topic)
        states = () if topic is None else topic.partitions
        led = {
            number: state.leader_epoch
            for number, state in enumerate(states)
            if state.leader == self._broker_id
        }
        for number in self._led.difference(led):
            coordinator.drop_partition(number)
        for number, leader_epoch in led.items():
            coordinator.take_partition(number, leader_epoch)
        self._led = set(led)
