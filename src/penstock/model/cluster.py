"""Who is in the cluster and who leads what, as plain values. The controller makes them, brokers
apply them, clients see them as metadata. Nothing here changes once made.
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
        return next((each for each in self.endpoints if each.listener == listener), None)


class PartitionState(NamedTuple):
    leader: BrokerId  # NO_BROKER: none at the moment
    leader_epoch: LeaderEpoch  # rises with every election
    replicas: tuple[BrokerId, ...]  # the first is the preferred leader
    in_sync: tuple[BrokerId, ...]
    partition_epoch: int = 0  # rises with every change of this state
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    adding: tuple[BrokerId, ...] = ()  # of a reassignment under way
    removing: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]  # by number
    configs: Mapping[str, str] = field(default_factory=dict)  # the topic's own, as given

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


# The live brokers on which the log of a partition has failed; no entry is empty.
FailedReplicas = Mapping[TopicPartition, frozenset[BrokerId]]


# Orders of the controller to a broker; those of an older controller's epoch are refused.


class LeaderAndIsrPartition(NamedTuple):
    tp: TopicPartition
    topic_id: TopicId
    state: PartitionState
    is_new: bool  # just created: no broker may have records of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """Lead these partitions, or follow their leader, as the states say."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch  # of the addressed broker: a later life of it refuses the order
    partitions: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """Stop serving these; `delete` removes their data as well."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """What changed: a broker's view is the sum of these since the controller's first, full one."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    is_full: bool  # replaces everything known before
    brokers: tuple[BrokerNode, ...] | None = None  # None: as before
    topics: tuple[TopicState, ...] = ()  # new or changed, each complete
    deleted_topics: tuple[str, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] | None = (
        None  # "" is every broker; None: as before
    )
    failed: FailedReplicas | None = None  # all there are; None: as before


ControllerRequestBody = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class ControllerRequest(NamedTuple):
    """An order on its way to one life of a broker."""

    broker_epoch: BrokerEpoch  # a later life refuses it
    body: ControllerRequestBody
    number: int  # grows with every order of one controller epoch; a copy has the same
