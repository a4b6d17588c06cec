"""Brokers, topics, partition states and controller requests, as plain values.

The controller creates them, brokers apply them, clients see them as metadata. All are immutable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)  # the zxid that created the broker's registration
ControllerEpoch = NewType("ControllerEpoch", int)

NO_BROKER = BrokerId(-1)  # no leader, or no controller


class Endpoint(NamedTuple):
    listener: str  # its name, upper case
    protocol: str  # PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """A live broker."""

    id: BrokerId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def find_endpoint(self, listener: str) -> Endpoint | None:
        return next(
            (endpoint for endpoint in self.endpoints if endpoint.listener == listener), None
        )


class PartitionState(NamedTuple):
    leader: BrokerId  # NO_BROKER: offline, no leader
    leader_epoch: LeaderEpoch  # raised by every election
    replicas: tuple[BrokerId, ...]  # the first is the preferred leader
    in_sync: tuple[BrokerId, ...]
    partition_epoch: int = 0  # raised by every change of this state
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    adding: tuple[BrokerId, ...] = ()  # replicas that a reassignment adds
    removing: tuple[BrokerId, ...] = ()  # replicas that it removes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]  # by number
    configs: Mapping[str, str] = field(default_factory=dict)  # those set for the topic itself

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
DEFERRED_TOPIC = "__penstock_deferred"
AUDIT_TOPIC = "__penstock_audit"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, DEFERRED_TOPIC, AUDIT_TOPIC))


# By partition, the live brokers whose log of it has failed; no entry is empty.
FailedReplicas = Mapping[TopicPartition, frozenset[BrokerId]]


# Controller requests. A broker rejects those with a stale controller epoch.


class LeaderAndIsrPartition(NamedTuple):
    tp: TopicPartition
    topic_id: TopicId
    state: PartitionState
    is_new: bool  # just created: no broker has records of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """Become leader or follower of these partitions, according to their states."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch  # of the receiver, which rejects a stale one
    partitions: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """Stop these replicas; `delete` also deletes their logs."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """Metadata changes; a broker's metadata cache is the sum of these since the last full one."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    is_full: bool  # replaces the whole metadata cache
    brokers: tuple[BrokerNode, ...] | None = None  # None: unchanged
    topics: tuple[TopicState, ...] = ()  # new or changed, with all their partitions
    deleted_topics: tuple[str, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] | None = (
        None  # by broker id, "" for all brokers; None: unchanged
    )
    failed: FailedReplicas | None = None  # all of them; None: unchanged
    group_configs: Mapping[str, Mapping[str, str]] | None = None  # of all groups; None: unchanged


ControllerRequestBody = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class RequestPart(NamedTuple):
    """Which part of a request this is; the default: the whole."""

    position: int = 0
    is_last: bool = True


class ControllerRequest(NamedTuple):
    """A request to a broker, addressed to its broker epoch."""

    broker_epoch: BrokerEpoch  # the receiver rejects a stale one
    body: ControllerRequestBody
    number: int  # increases within a controller epoch; a retry keeps it
    part: RequestPart = (
        RequestPart()
    )  # of a large UpdateMetadata or StopReplica; parts share the number
