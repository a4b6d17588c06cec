"""Describes a group with its offsets and lag, joined from what coordinator and leaders answer.

A value that is unknown at the moment (topic deleted, partition without a leader) is None.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST
from penstock.client.errors import ClientError
from penstock.client.group_values import GroupDescription, GroupPartition
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_offset_times import WantedTime


async def describe_group(
    client: ClusterClient, group: str, *, timeout_ms: int | None = None
) -> GroupDescription:
    description = await client.groups.describe(group, timeout_ms=timeout_ms)
    # Committed offsets are fetched before end offsets, so that lag is never negative.
    committed = await client.groups.fetch_offsets(group, timeout_ms=timeout_ms)
    owners = {tp: member for member in description.members for tp in member.assignment}
    partitions = sorted({*committed, *owners})
    leaders = await _find_leaders(client, partitions, timeout_ms)
    listed = await client.settle_offsets(dict.fromkeys(leaders, LATEST), timeout_ms=timeout_ms)
    with_offsets = [
        GroupPartition(
            tp=tp,
            committed=committed.get(tp),
            end_offset=None
            if isinstance(end := listed.get(tp), ClientError | None)
            else end.offset,
            member=owners.get(tp),
        )
        for tp in partitions
    ]
    ages = await client.offset_times.find_ages(
        _list_behind(with_offsets, leaders), timeout_ms=timeout_ms
    )
    return replace(
        description, partitions=tuple(_with_time_lag(partition, ages) for partition in with_offsets)
    )


async def _find_leaders(
    client: ClusterClient, partitions: Collection[TopicPartition], timeout_ms: int | None
) -> dict[TopicPartition, BrokerId]:
    """Without partitions that have none."""
    if not partitions:
        return {}
    metadata = await client.metadata({tp.topic for tp in partitions}, timeout_ms=timeout_ms)
    partition_metadata = {tp: metadata.find_partition(*tp) for tp in partitions}
    return {
        tp: partition.leader
        for tp, partition in partition_metadata.items()
        if partition is not None and partition.leader != NO_BROKER
    }


def _list_behind(
    partitions: Iterable[GroupPartition], leaders: Mapping[TopicPartition, BrokerId]
) -> dict[BrokerId, list[WantedTime]]:
    """The committed offsets with records behind them, by the leader that has these."""
    behind: dict[BrokerId, list[WantedTime]] = {}
    for partition in partitions:
        if partition.committed is not None and partition.lag is not None and partition.lag > 0:
            wanted = WantedTime(partition.tp, partition.committed.offset)
            behind.setdefault(leaders[partition.tp], []).append(wanted)
    return behind


def _with_time_lag(partition: GroupPartition, ages: Mapping[TopicPartition, int]) -> GroupPartition:
    if partition.lag is None:
        return partition
    return replace(partition, time_lag_ms=ages.get(partition.tp) if partition.lag > 0 else 0)
