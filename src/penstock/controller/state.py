"""The controller's view of the cluster, and what a decision is. All values are immutable.

Whenever no decision is being written, the view equals what a fresh read of the metadata store
gives, except for the fields that say otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.controller.config_resources import ClientEntity
from penstock.metadata_store.interface import Operation
from penstock.model.broker_report import BrokerReport, LogPosition
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
    topics: Mapping[str, TopicState] = field(default_factory=dict)  # including those being deleted
    # Topics being deleted, each with the brokers that have not yet confirmed StopReplica.
    deleting: Mapping[str, frozenset[BrokerId]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # "": every broker
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Quotas and credentials. Read, checked and kept, but nothing acts on them yet.
    client_configs: Mapping[ClientEntity, Mapping[str, str]] = field(default_factory=dict)
    # Paths of config znodes that cannot be read or are invalid: for their resources this view has
    # what was in force before.
    refused_configs: frozenset[str] = frozenset()
    absent_configs: frozenset[str] = frozenset()  # paths that topics' configs should have
    # Brokers in controlled shutdown, at their current broker epoch. Not in the metadata store: a
    # broker repeats its request to the next controller.
    shutting_down: frozenset[BrokerId] = frozenset()
    # Replicas whose log has failed, at their broker's current epoch. Not in the metadata store:
    # brokers report them again to the next controller.
    failed: FailedReplicas = field(default_factory=dict)
    # What live brokers reported before they registered, without empty reports. Between two
    # decisions: only in-sync replicas of partitions without a leader.
    reports: Mapping[BrokerId, BrokerReport] = field(default_factory=dict)
    unreadable: frozenset[str] = (
        frozenset()
    )  # topic znodes that cannot be parsed; names are reserved

    def find_topic(self, name: str) -> TopicState | None:
        """None also for a topic that is being deleted."""
        return None if name in self.deleting else self.topics.get(name)

    def online_brokers(self, tp: TopicPartition) -> frozenset[BrokerId]:
        """The live brokers whose replica of the partition has not failed."""
        return frozenset(self.brokers).difference(self.failed.get(tp, ()))

    def incomplete_replicas(self, tp: TopicPartition) -> dict[BrokerId, LogPosition]:
        """The live brokers whose replica has lost records, each with what is left of its log."""
        topic = self.topics[tp.topic]
        reported = ((broker, report.replicas.get(tp)) for broker, report in self.reports.items())
        return {
            broker: replica.position
            for broker, replica in reported
            if replica is not None and replica.topic_id == topic.topic_id
        }

    def with_topics(self, topics: Iterable[TopicState]) -> "ClusterState":
        changed = {topic.name: topic for topic in topics}
        return replace(self, topics={**self.topics, **changed}) if changed else self


WriteStep = tuple[Operation, ...]  # atomic: all operations or none


class AddressedRequest(NamedTuple):
    broker: BrokerId
    request: ControllerRequestBody


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDecision:
    """Applied in this order: the writes, step by step; then the state; then the requests.

    After a crash at any step, the next controller's read and `repair` complete what was begun.
    """

    state: ClusterState
    writes: tuple[WriteStep, ...] = ()
    requests: tuple[AddressedRequest, ...] = ()

    def then(self, later: "ControllerDecision") -> "ControllerDecision":
        """Both decisions; the later one was decided on this one's state."""
        return ControllerDecision(
            state=later.state,
            writes=self.writes + later.writes,
            requests=self.requests + later.requests,
        )
