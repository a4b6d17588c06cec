"""Gathers what `penstock group describe` shows: members, assignments and lag.

A value that is unknown at the moment (topic deleted, partition without a leader) is None.
"""

from collections.abc import Collection
from dataclasses import dataclass

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST
from penstock.client.group_values import CommittedOffset, GroupDescription, GroupMember
from penstock.model.cluster import NO_BROKER
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPartition:
    """A partition with a committed offset, or assigned to a member."""

    tp: TopicPartition
    committed: CommittedOffset | None
    end_offset: int | None  # the high watermark
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset

    def as_row(self) -> list[object]:
        return [
            self.tp.topic,
            self.tp.partition,
            None if self.committed is None else self.committed.offset,
            self.end_offset,
            self.lag,
            None if self.member is None else self.member.member,
            None if self.member is None else self.member.host.removeprefix("/"),
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "committed_offset": None if self.committed is None else self.committed.offset,
            "metadata": None if self.committed is None else self.committed.metadata,
            "end_offset": self.end_offset,
            "lag": self.lag,
            "member": None if self.member is None else self.member.member,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    description: GroupDescription
    partitions: list[ReadPartition]

    @property
    def lag(self) -> int | None:
        """The sum over partitions with a known lag; None if there is none."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None

    @property
    def partitions_without_lag(self) -> int:
        return sum(partition.lag is None for partition in self.partitions)

    @property
    def lag_text(self) -> str:
        without = self.partitions_without_lag
        total = "-" if self.lag is None else str(self.lag)
        if not self.partitions:
            return f"{total} (nothing is committed)"
        if not without:
            return total
        plural = "" if without == 1 else "s"
        return f"{total} ({without} partition{plural} without a committed or an end offset)"

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.description.group,
            "kind": self.description.kind,
            "state": self.description.state,
            "assignor": self.description.assignor,
            "epoch": self.description.epoch,
            "coordinator": self.description.coordinator.id,
            "lag": self.lag,
            "partitions_without_lag": self.partitions_without_lag,
            "members": [_member_json(member) for member in self.description.members],
            "partitions": [partition.as_json() for partition in self.partitions],
        }


def _member_json(member: GroupMember) -> dict[str, object]:
    assignment: dict[str, list[int]] = {}
    for tp in member.assignment:
        assignment.setdefault(tp.topic, []).append(tp.partition)
    return {
        "member": member.member,
        "instance": member.instance,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "epoch": member.epoch,
        "assignment": assignment,
    }


async def describe_group(client: ClusterClient, group: str) -> GroupReport:
    description = await client.groups.describe(group)
    # Committed offsets are fetched before end offsets, so that lag is never negative.
    committed = await client.groups.fetch_offsets(group)
    owners = {tp: member for member in description.members for tp in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = await _end_offsets(client, partitions)
    return GroupReport(
        description=description,
        partitions=[
            ReadPartition(
                tp=partition,
                committed=committed.get(partition),
                end_offset=ends.get(partition),
                member=owners.get(partition),
            )
            for partition in partitions
        ],
    )


async def _end_offsets(
    client: ClusterClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    metadata = await client.metadata({tp.topic for tp in partitions})
    led = [
        tp
        for tp in partitions
        if (partition_metadata := metadata.find_partition(*tp)) is not None
        and partition_metadata.leader != NO_BROKER
    ]
    listed = await client.list_offsets(dict.fromkeys(led, LATEST))
    return {partition: listed_offset.offset for partition, listed_offset in listed.items()}
