"""The part of `AsyncAdmin` for consumer groups, their members and their committed offsets."""

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from penstock.client.admin_arguments import (
    PartitionsGiven,
    read_name,
    read_names,
    read_offset,
    read_partition,
    split_partitions,
    time_ms,
)
from penstock.client.admin_operations import AdminOperations, ask_for_each
from penstock.client.group_calls import MemberToRemove
from penstock.client.group_descriptions import describe_group
from penstock.client.group_values import CommittedOffset, GroupDescription, ListedGroup
from penstock.client.offset_reset import (
    PlannedReset,
    ResetKind,
    ResetScope,
    ResetTarget,
    commit_offsets,
    reset_offsets,
)
from penstock.model.ids import TopicPartition

ResetTo = Literal["earliest", "latest"] | int | datetime | timedelta


class GroupOperations(AdminOperations):
    async def list_groups(
        self,
        *,
        states: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[ListedGroup]:
        """Groups of every broker, by name; only those in one of these states ("Stable", "Empty",
        ...) and of these kinds ("classic", "consumer")."""
        listed = await self._connected().groups.list_groups(timeout_ms=self._ms(timeout_s))
        return [
            group
            for group in listed
            if _is_among(group.state, states) and _is_among(group.kind, kinds)
        ]

    async def describe_groups(
        self,
        groups: str | Iterable[str],
        *,
        offsets: bool = True,
        timeout_s: float | None = None,
    ) -> dict[str, GroupDescription]:
        """State, members and their partitions; for each partition the committed offset, the end
        offset and the lag. `offsets=False` asks for no offsets. GroupNotFound if there is none."""
        names, client, timeout_ms = (
            read_names("group", groups),
            self._connected(),
            self._ms(timeout_s),
        )

        async def describe(group: str) -> GroupDescription:
            if offsets:
                return await describe_group(client, group, timeout_ms=timeout_ms)
            return await client.groups.describe(group, timeout_ms=timeout_ms)

        return await ask_for_each(names, describe)

    async def delete_groups(
        self, groups: str | Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Delete groups with their committed offsets. GroupNotEmpty while a group has members."""
        names, client, timeout_ms = (
            read_names("group", groups),
            self._connected(),
            self._ms(timeout_s),
        )
        await ask_for_each(names, lambda group: client.groups.delete(group, timeout_ms=timeout_ms))

    async def list_group_offsets(
        self,
        group: str,
        partitions: PartitionsGiven | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets: the next offset that the group reads. Partitions without one are left
        out. None: all partitions of the group."""
        timeout_ms = self._ms(timeout_s)
        wanted = None if partitions is None else await self._get_partitions(partitions, timeout_ms)
        return await self._connected().groups.fetch_offsets(
            read_name("group", group), wanted, timeout_ms=timeout_ms
        )

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Set the offsets that the group reads next; this creates the group if there is none.
        GroupNotEmpty while it has members: they would continue from their own positions."""
        committed = {
            read_partition(tp): given
            if isinstance(given, CommittedOffset)
            else CommittedOffset(read_offset(TopicPartition(*tp), given))
            for tp, given in offsets.items()
        }
        timeout_ms = self._ms(timeout_s)
        await self._get_partitions(committed, timeout_ms)
        name = read_name("group", group)
        await commit_offsets(self._connected(), name, committed, timeout_ms=timeout_ms)

    async def reset_group_offsets(
        self,
        group: str,
        partitions: PartitionsGiven | None = None,
        *,
        to: ResetTo | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> list[PlannedReset]:
        """Move the group to "earliest", "latest", an offset, the first record at or after a
        datetime, that of a timedelta ago, or by a number of records (`shift_by`).

        Returns the offset of each partition before and after; with `dry_run` nothing is committed.
        An offset outside the log becomes the nearest one inside. None: every partition with a
        committed offset. GroupNotEmpty while the group has members."""
        target = _read_target(to, shift_by)
        scopes = None if partitions is None else _scopes(partitions)
        return await reset_offsets(
            self._connected(),
            read_name("group", group),
            scopes,
            target,
            execute=not dry_run,
            timeout_ms=self._ms(timeout_s),
        )

    async def delete_group_offsets(
        self, group: str, partitions: PartitionsGiven, *, timeout_s: float | None = None
    ) -> None:
        """Delete committed offsets. Refused while a member of the group reads the topic."""
        timeout_ms = self._ms(timeout_s)
        wanted = await self._get_partitions(partitions, timeout_ms)
        await self._connected().groups.delete_offsets(
            read_name("group", group), wanted, timeout_ms=timeout_ms
        )

    async def remove_group_members(
        self,
        group: str,
        members: Iterable[str] = (),
        *,
        instances: Iterable[str] = (),
        everyone: bool = False,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> None:
        """Remove members by member id, static ones by group instance id, or everyone, before their
        sessions expire. A member that still runs joins again."""
        name, timeout_ms = read_name("group", group), self._ms(timeout_s)
        client = self._connected()
        leaving = [MemberToRemove(member=member) for member in members]
        leaving += [MemberToRemove(instance=instance) for instance in instances]
        if everyone == bool(leaving):
            raise ValueError("say which members: `members`, `instances`, or everyone=True")
        if everyone:
            described = await client.groups.describe(name, timeout_ms=timeout_ms)
            leaving = [MemberToRemove(one.member, one.instance) for one in described.members]
        if leaving:
            await client.groups.remove_members(name, leaving, reason=reason, timeout_ms=timeout_ms)


def _is_among(value: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or value.lower() in {one.lower() for one in wanted}


def _scopes(partitions: PartitionsGiven) -> list[ResetScope]:
    whole, single = split_partitions(partitions)
    numbers: dict[str, list[int]] = {}
    for tp in single:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return [
        *(ResetScope(topic) for topic in whole),
        *(ResetScope(topic, tuple(listed)) for topic, listed in numbers.items()),
    ]


def _read_target(to: ResetTo | None, shift_by: int | None) -> ResetTarget:
    if (to is None) == (shift_by is None):
        raise ValueError("say where to, with either `to` or `shift_by`")
    if shift_by is not None:
        return ResetTarget(ResetKind.SHIFT, shift_by)
    match to:
        case "earliest":
            return ResetTarget(ResetKind.EARLIEST)
        case "latest":
            return ResetTarget(ResetKind.LATEST)
        case datetime():
            return ResetTarget(ResetKind.TIME, time_ms(to))
        case timedelta():
            ago_ms = to // timedelta(milliseconds=1)
            return ResetTarget(ResetKind.TIME, round(time.time() * 1000) - ago_ms)
        case int() if not isinstance(to, bool) and to >= 0:
            return ResetTarget(ResetKind.OFFSET, to)
    raise ValueError(
        f"{to!r} is no position: write 'earliest', 'latest', an offset, a datetime or a timedelta"
    )
