"""Markers written to the partitions that this broker leads: by its own coordinator, and for others.

Invariant: a marker that comes again is written again and changes nothing (KAFKA-19999); one that
comes so late that the producer's next transaction is open ends nothing, where that can be told:
transactions v2 give each transaction an epoch of its own. Where the partition is past it and
nothing is open, PRODUCER_FENCED says so: what it was to end has ended, and there is a later one.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import FIRST_WITH_EPOCH_OF_ITS_OWN, TransactionMarker
from penstock.protocol.control import build_end_marker_batch
from penstock.replication.delayed_produce import PartitionAppended
from penstock.storage.engine import AppendOrigin

if TYPE_CHECKING:
    from penstock.apis.services import Services

_ALL_IN_SYNC = -1

# What the groups' shard says, in words that a transaction coordinator knows of any partition.
_SHARD_IS_ELSEWHERE = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)

Wanted = tuple[TransactionMarker, Sequence[TopicPartition]]
Codes = dict[TopicPartition, ErrorCode]


async def write_markers(services: "Services", wanted: Sequence[Wanted]) -> list[Codes]:
    """For each marker how it went, by partition; NONE: it is committed."""
    answers: list[Codes] = [dict.fromkeys(each, ErrorCode.NONE) for _, each in wanted]
    batches: list[tuple[TopicPartition, memoryview]] = []
    codes_of: list[Codes] = []  # of the same places as `batches`
    in_groups: list[tuple[Codes, TopicPartition, Awaitable[ErrorCode]]] = []
    for (marker, partitions), codes in zip(wanted, answers, strict=True):
        for name in partitions:
            answer = _find_answer(services, marker, name)
            if answer is not None:
                codes[name] = answer
            elif name.topic == OFFSETS_TOPIC:
                ended = services.groups.end_transaction(name.partition, marker)
                in_groups.append((codes, name, ended))
            else:
                batches.append((name, memoryview(_build(services, marker))))
                codes_of.append(codes)
    for codes, (name, _), told in zip(
        codes_of, batches, await _append(services, batches), strict=True
    ):
        codes[name] = told.code
    for codes, name, ended in in_groups:
        code = await ended
        codes[name] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _SHARD_IS_ELSEWHERE else code
    return answers


def _find_answer(
    services: "Services", marker: TransactionMarker, name: TopicPartition
) -> ErrorCode | None:
    """None: it has to be written, now and with nothing awaited before. Where this broker does not
    lead, the append says so itself."""
    partition = services.replicas.find(name)
    leadership = None if partition is None else partition.leadership
    if partition is None or leadership is None:
        return None
    leadership.verifications.on_marker(marker.producer_id, marker.last_ended_epoch)
    is_of_v2 = marker.transaction_version >= FIRST_WITH_EPOCH_OF_ITS_OWN
    producers = partition.log.producers
    if is_of_v2 and producers.has_transaction(marker.producer_id, marker.producer_epoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH  # it ended the transaction before that one
    epochs = marker.producer_epoch, marker.last_ended_epoch, marker.coordinator_epoch
    is_past = producers.is_past(marker.producer_id, *epochs)
    return ErrorCode.PRODUCER_FENCED if is_past else None


def _build(services: "Services", marker: TransactionMarker) -> bytearray:
    return build_end_marker_batch(
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=services.wall_ms(),
    )


async def _append(
    services: "Services", batches: Sequence[tuple[TopicPartition, memoryview]]
) -> Sequence[PartitionAppended]:
    if not batches:
        return ()
    timeout_ms = services.effective_config()["request.timeout.ms"]
    assert isinstance(timeout_ms, int)
    told: asyncio.Future[list[PartitionAppended]] = asyncio.get_running_loop().create_future()
    services.replicas.append(
        batches,
        acks=_ALL_IN_SYNC,
        timeout_ms=timeout_ms,
        origin=AppendOrigin.COORDINATOR,
        done=partial(_tell, told),
    )
    return await told


def _tell(
    told: "asyncio.Future[list[PartitionAppended]]", answers: list[PartitionAppended]
) -> None:
    if not told.done():  # else whoever asked has gone
        told.set_result(answers)
