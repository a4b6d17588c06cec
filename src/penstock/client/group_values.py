"""Consumer groups as an administrator sees them, as plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.ids import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"  # the consumer protocol (KIP-848)


class ListedGroup(NamedTuple):
    group: str
    kind: str  # CLASSIC, CONSUMER or another; empty: an old broker does not return it
    state: str  # Kafka's names; empty: an old broker does not return it
    protocol_type: str  # "consumer" for consumers of either protocol; empty without members


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member: str
    instance: str | None  # of a static member
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None  # consumer protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    kind: str
    state: str
    assignor: str  # empty until one is chosen
    members: tuple[GroupMember, ...]
    coordinator: BrokerMetadata
    epoch: int | None = None  # consumer protocol; classic generations are not described


class CommittedOffset(NamedTuple):
    offset: int  # the next offset to read
    leader_epoch: int = -1  # -1: unknown
    metadata: str = ""
