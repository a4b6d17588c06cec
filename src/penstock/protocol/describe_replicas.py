"""DescribeReplicas (private key 31007), version 0: request body and payload, to bytes and back.

In `protocol` because the client sends and reads it; the response is `private_response` with a
payload. A broker describes the replicas that it has, and a leader also what it knows of its
followers: one that does not answer is described by its leader.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.private_response import read_topic_partition, write_topic_partition
from penstock.protocol.request_budget import RequestBudget

DESCRIBE_REPLICAS_VERSIONS = range(1)
MAX_PARTITIONS = 1_000  # of one request: its response is built at once
UNKNOWN = -1


class ReplicaRole(IntEnum):
    NONE = 0  # has no leader yet, or its log has failed
    LEADER = 1
    FOLLOWER = 2


class DescribedFollower(NamedTuple):
    """As its leader knows it. Milliseconds are those that have passed."""

    broker_id: int
    log_end_offset: int  # UNKNOWN before its first fetch from this leader
    behind_ms: int  # since it last had all of the leader's log; 0: it has; UNKNOWN: never
    fetched_ms: int  # since its last fetch


class DescribedReplica(NamedTuple):
    tp: TopicPartition
    role: ReplicaRole
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    failure: str | None  # why its log is offline
    followers: tuple[DescribedFollower, ...] = ()  # of a leader


def encode_describe_replicas(partitions: Sequence[TopicPartition]) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(partitions, write_topic_partition)
    writer.tags()
    return writer.done()


def decode_describe_replicas(
    body: Buffer, budget: RequestBudget | None = None
) -> list[TopicPartition]:
    reader = ValueReader(body, flexible=True, budget=budget)
    partitions = reader.array(read_topic_partition)
    reader.tags()
    reader.end()
    return partitions


def encode_replicas(replicas: Sequence[DescribedReplica]) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(replicas, _write_replica)
    writer.tags()
    return writer.done()


def decode_replicas(payload: Buffer) -> list[DescribedReplica]:
    reader = ValueReader(payload, flexible=True)
    replicas = reader.array(_read_replica)
    reader.tags()
    reader.end()
    return replicas


def _write_replica(writer: ValueWriter, replica: DescribedReplica) -> None:
    write_topic_partition(writer, replica.tp)
    writer.int8(replica.role)
    writer.int32(replica.leader_epoch)
    writer.int64(replica.log_start_offset)
    writer.int64(replica.last_stable_offset)
    writer.int64(replica.high_watermark)
    writer.int64(replica.log_end_offset)
    writer.int64(replica.size_bytes)
    writer.string(replica.failure)
    writer.array(replica.followers, _write_follower)
    writer.tags()


def _read_replica(reader: ValueReader) -> DescribedReplica:
    replica = DescribedReplica(
        read_topic_partition(reader),
        ReplicaRole(reader.int8()),
        reader.int32(),
        reader.int64(),
        reader.int64(),
        reader.int64(),
        reader.int64(),
        reader.int64(),
        reader.nullable_string(),
        tuple(reader.array(_read_follower)),
    )
    reader.tags()
    return replica


def _write_follower(writer: ValueWriter, follower: DescribedFollower) -> None:
    writer.int32(follower.broker_id)
    writer.int64(follower.log_end_offset)
    writer.int64(follower.behind_ms)
    writer.int64(follower.fetched_ms)
    writer.tags()


def _read_follower(reader: ValueReader) -> DescribedFollower:
    follower = DescribedFollower(reader.int32(), reader.int64(), reader.int64(), reader.int64())
    reader.tags()
    return follower
