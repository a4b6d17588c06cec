"""Joins what brokers say of a partition's replicas with what its leader knows of them. Pure.

A replica describes itself; one whose broker does not answer is described by its leader, as far as
that knows it. How far a replica is behind is always the leader's view: log ends that two brokers
report at different moments cannot be compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.metadata import PartitionMetadata
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_replicas import UNKNOWN, DescribedFollower, DescribedReplica

Answers = Mapping[BrokerId, Mapping[TopicPartition, DescribedReplica]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """None: not known."""

    broker: int
    is_leader: bool
    is_in_sync: bool
    has_answered: bool
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None
    behind: int | None  # records that the leader has and it has not
    behind_ms: int | None  # since it last had all of the leader's log
    failure: str | None  # why its log is offline

    @property
    def state(self) -> str:
        if self.failure is not None:
            return "offline"
        role = "leader" if self.is_leader else "in sync" if self.is_in_sync else "out of sync"
        return role if self.has_answered else f"{role}, no answer"

    def as_json(self) -> dict[str, object]:
        return {
            "broker": self.broker,
            "leader": self.is_leader,
            "in_sync": self.is_in_sync,
            "answered": self.has_answered,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "size_bytes": self.size_bytes,
            "behind": self.behind,
            "behind_ms": self.behind_ms,
            "failure": self.failure,
        }


def describe_replicas(
    tp: TopicPartition, metadata: PartitionMetadata, answers: Answers
) -> list[ReplicaDescription]:
    """In the order of the assignment: the first is the preferred leader."""
    leader = answers.get(metadata.leader, {}).get(tp)
    return [
        _describe(broker, metadata, answers.get(broker, {}).get(tp), leader)
        for broker in metadata.replicas
    ]


def _describe(
    broker: BrokerId,
    metadata: PartitionMetadata,
    own: DescribedReplica | None,
    leader: DescribedReplica | None,
) -> ReplicaDescription:
    is_leader = broker == metadata.leader
    followers = {} if leader is None else {seen.broker_id: seen for seen in leader.followers}
    seen = followers.get(broker)
    behind, behind_ms = (0, 0) if is_leader and own is not None else _lag(seen, leader)
    return ReplicaDescription(
        broker=broker,
        is_leader=is_leader,
        is_in_sync=broker in metadata.in_sync,
        has_answered=own is not None,
        log_start_offset=None if own is None else own.log_start_offset,
        high_watermark=None if own is None else own.high_watermark,
        log_end_offset=_find_number(seen.log_end_offset if seen else None)
        if own is None
        else own.log_end_offset,
        size_bytes=None if own is None else own.size_bytes,
        behind=behind,
        behind_ms=behind_ms,
        failure=None if own is None else own.failure,
    )


def _lag(
    seen: DescribedFollower | None, leader: DescribedReplica | None
) -> tuple[int | None, int | None]:
    if seen is None or leader is None:
        return None, None
    end = _find_number(seen.log_end_offset)
    behind = None if end is None else max(0, leader.log_end_offset - end)
    return behind, _find_number(seen.behind_ms)


def _find_number(number: int | None) -> int | None:
    return None if number == UNKNOWN else number
