"""Appends transaction markers to partitions that this broker leads, for any coordinator.

Invariant: a repeated marker is appended again and changes nothing (KAFKA-19999). A marker that
arrives after the producer's next transaction has begun ends nothing, as far as that can be told:
transactions v2 give each transaction its own producer epoch. PRODUCER_FENCED means that the
partition is past the marker and no transaction is open: the one to end has ended, and a later
epoch has been seen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import FIRST_WITH_EPOCH_OF_ITS_OWN, TransactionMarker
from penstock.protocol.control import build_end_marker_batch
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.engine import AppendOrigin

_ALL_IN_SYNC = -1

# A shard that is not here is, to a transaction coordinator, a partition that this broker does not
# lead.
_SHARD_IS_ELSEWHERE = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)

MarkerWrite = tuple[TransactionMarker, Sequence[TopicPartition]]
MarkerCodes = dict[TopicPartition, ErrorCode]
# Ends a transaction in one partition of an internal topic, which its coordinator appends to.
EndTransactionInShard = Callable[[int, TransactionMarker], Awaitable[ErrorCode]]


async def append_markers(
    writes: Sequence[MarkerWrite],
    *,
    replicas: ReplicaManager,
    coordinators: Mapping[str, EndTransactionInShard],
    wall_ms: Callable[[], int],
    timeout_ms: int,
) -> list[MarkerCodes]:
    """One result per marker, by partition; NONE: the marker is committed. `coordinators`: of
    internal topics."""
    results: list[MarkerCodes] = [dict.fromkeys(tps, ErrorCode.NONE) for _, tps in writes]
    batches: list[tuple[TopicPartition, memoryview]] = []
    codes_of: list[MarkerCodes] = []  # parallel to `batches`
    in_shards: list[tuple[MarkerCodes, TopicPartition, Awaitable[ErrorCode]]] = []
    for (marker, tps), codes in zip(writes, results, strict=True):
        for tp in tps:
            refusal = _find_refusal(replicas, marker, tp)
            if refusal is not None:
                codes[tp] = refusal
            elif tp.topic in coordinators:
                in_shards.append((codes, tp, coordinators[tp.topic](tp.partition, marker)))
            else:
                batches.append((tp, memoryview(_build(marker, wall_ms()))))
                codes_of.append(codes)
    appended = await _append(replicas, batches, timeout_ms)
    for codes, (tp, _), result in zip(codes_of, batches, appended, strict=True):
        codes[tp] = result.code
    for codes, tp, ended in in_shards:
        code = await ended
        codes[tp] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _SHARD_IS_ELSEWHERE else code
    return results


def _find_refusal(
    replicas: ReplicaManager, marker: TransactionMarker, tp: TopicPartition
) -> ErrorCode | None:
    """None: append it at once, with nothing awaited in between. If this broker does not lead the
    partition, the append itself says so."""
    partition = replicas.find(tp)
    leadership = None if partition is None else partition.leadership
    if partition is None or leadership is None:
        return None
    leadership.verifications.on_marker(marker.producer_id, marker.last_ended_epoch)
    is_v2 = marker.transaction_version >= FIRST_WITH_EPOCH_OF_ITS_OWN
    producers = partition.log.producers
    if is_v2 and producers.has_transaction(marker.producer_id, marker.producer_epoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH  # the marker is the previous transaction's
    epochs = marker.producer_epoch, marker.last_ended_epoch, marker.coordinator_epoch
    is_past = producers.is_past(marker.producer_id, *epochs)
    return ErrorCode.PRODUCER_FENCED if is_past else None


def _build(marker: TransactionMarker, timestamp_ms: int) -> bytearray:
    return build_end_marker_batch(
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=timestamp_ms,
    )


async def _append(
    replicas: ReplicaManager,
    batches: Sequence[tuple[TopicPartition, memoryview]],
    timeout_ms: int,
) -> Sequence[PartitionAppended]:
    if not batches:
        return ()
    appended: asyncio.Future[list[PartitionAppended]] = asyncio.get_running_loop().create_future()
    replicas.append(
        batches,
        acks=_ALL_IN_SYNC,
        timeout_ms=timeout_ms,
        origin=AppendOrigin.COORDINATOR,
        done=partial(_set_result, appended),
    )
    return await appended


def _set_result(
    appended: "asyncio.Future[list[PartitionAppended]]", results: list[PartitionAppended]
) -> None:
    if not appended.done():  # else the caller was cancelled
        appended.set_result(results)
