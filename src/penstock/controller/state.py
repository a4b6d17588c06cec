"""What the controller knows of the cluster, and what a decision is. Nothing here changes once made.

Not a cache of its own: it equals what a fresh read of the tree gives, at every moment in which
no decision is being written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.metadata_store.interface import Operation
from penstock.model.cluster import (
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    ControllerRequestBody,
    FailedReplicas,
    TopicState,
)
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: Mapping[BrokerId, BrokerNode] = field(default_factory=dict)  # the live ones
    topics: Mapping[str, TopicState] = field(default_factory=dict)  # those being deleted too
    # Topics being deleted, each with the brokers that have not yet said that its data is gone.
    deleting: Mapping[str, frozenset[BrokerId]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # "": every broker
    # Brokers that are about to stop, in the life they have now. Not in the tree: whoever is the
    # next controller is told again.
    leaving: frozenset[BrokerId] = frozenset()
    # Replicas whose log has failed, by partition, in the life that their broker has now. Not in
    # the tree either.
    failed: FailedReplicas = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()  # nodes of topics that are none: nobody may use these

    def find_topic(self, name: str) -> TopicState | None:
        """One that is not being deleted."""
        return None if name in self.deleting else self.topics.get(name)

    def able(self, partition: TopicPartition) -> frozenset[BrokerId]:
        """Live brokers, but for those whose replica of it has failed."""
        return frozenset(self.brokers).difference(self.failed.get(partition, ()))

    def with_topics(self, topics: Iterable[TopicState]) -> "ClusterState":
        changed = {topic.name: topic for topic in topics}
        return replace(self, topics={**self.topics, **changed}) if changed else self


Writes = tuple[Operation, ...]  # of one step: all of them or none


class AddressedRequest(NamedTuple):
    broker: BrokerId
    request: ControllerRequestBody


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDecision:
    """Carried out in this order: the writes, step by step; the state; the orders.

    Whatever step a crash comes after, a fresh read and `repair` lead to where nothing is half made.
    """

    state: ClusterState
    writes: tuple[Writes, ...] = ()
    requests: tuple[AddressedRequest, ...] = ()

    def then(self, later: "ControllerDecision") -> "ControllerDecision":
        """Both, where the later one was decided on this one's state."""
        return ControllerDecision(
            state=later.state,
            writes=self.writes + later.writes,
            requests=self.requests + later.requests,
        )
