"""Consumer groups as an administrator sees them, as plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.ids import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"  # the newer protocol (KIP-848)


class ListedGroup(NamedTuple):
    group: str
    kind: str  # CLASSIC, CONSUMER or another; empty from a broker that does not tell
    state: str  # as Kafka names them; empty from a broker that does not tell
    protocol_type: str  # "consumer" for consumers of either kind; empty without members


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member: str
    instance: str | None  # of a static member
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None  # of the newer protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    kind: str
    state: str
    assignor: str  # empty as long as none is chosen
    members: tuple[GroupMember, ...]
    coordinator: BrokerMetadata
    epoch: int | None = None  # of the newer protocol; the older one tells its generation to nobody


class CommittedOffset(NamedTuple):
    offset: int  # the next one to be read
    leader_epoch: int = -1  # -1: not known
    metadata: str = ""
