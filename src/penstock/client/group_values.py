"""Consumer groups as an administrator sees them, as plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.ids import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"  # the consumer protocol (KIP-848)


@dataclass(frozen=True, slots=True, order=True)
class ListedGroup:
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

    def as_json(self) -> dict[str, object]:
        assignment: dict[str, list[int]] = {}
        for tp in self.assignment:
            assignment.setdefault(tp.topic, []).append(tp.partition)
        return {
            "member": self.member,
            "instance": self.instance,
            "client_id": self.client_id,
            "host": self.host.removeprefix("/"),
            "epoch": self.epoch,
            "assignment": assignment,
        }


class CommittedOffset(NamedTuple):
    offset: int  # the next offset to read
    leader_epoch: int = -1  # -1: unknown
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition with a committed offset, or assigned to a member. None: there is none, or it is
    not known at the moment (topic deleted, partition without a leader)."""

    tp: TopicPartition
    committed: CommittedOffset | None
    end_offset: int | None  # the high watermark
    member: GroupMember | None
    # Since the first record that is not consumed was written; 0: none is behind. Only Penstock's
    # brokers tell it.
    time_lag_ms: int | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "committed_offset": None if self.committed is None else self.committed.offset,
            "metadata": None if self.committed is None else self.committed.metadata,
            "end_offset": self.end_offset,
            "lag": self.lag,
            "time_lag_ms": self.time_lag_ms,
            "member": None if self.member is None else self.member.member,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    kind: str
    state: str
    assignor: str  # empty until one is chosen
    members: tuple[GroupMember, ...]
    coordinator: BrokerMetadata
    epoch: int | None = None  # consumer protocol; classic generations are not described
    partitions: tuple[GroupPartition, ...] = ()  # empty if offsets were not asked for

    @property
    def lag(self) -> int | None:
        """The sum over partitions with a known lag; None if there is none."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None

    @property
    def time_lag_ms(self) -> int | None:
        """The largest of all partitions; None if none is known."""
        time_lags = (partition.time_lag_ms for partition in self.partitions)
        return max((time_lag for time_lag in time_lags if time_lag is not None), default=None)

    @property
    def partitions_without_lag(self) -> int:
        return sum(partition.lag is None for partition in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.group,
            "kind": self.kind,
            "state": self.state,
            "assignor": self.assignor,
            "epoch": self.epoch,
            "coordinator": self.coordinator.id,
            "lag": self.lag,
            "time_lag_ms": self.time_lag_ms,
            "partitions_without_lag": self.partitions_without_lag,
            "members": [member.as_json() for member in self.members],
            "partitions": [partition.as_json() for partition in self.partitions],
        }
