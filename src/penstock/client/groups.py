"""Administers consumer groups: lists and describes them, resets offsets, deletes them.

Requests go to the group's coordinator, which is looked up again after it moves. Membership is not
handled here: see `penstock.Consumer`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.deadline import Deadline
from penstock.client.errors import Disconnected, RefusedByBroker, UnsupportedByBroker
from penstock.client.group_calls import (
    LIST_CALL,
    MemberToRemove,
    check_partitions,
    commit_offsets_call,
    delete_group_call,
    delete_offsets_call,
    describe_classic_call,
    describe_consumer_call,
    fetch_offsets_call,
    read_classic,
    read_consumer,
    read_listed,
    read_offsets,
    read_removed,
    remove_members_call,
)
from penstock.client.group_values import CommittedOffset, GroupDescription, ListedGroup
from penstock.client.item_results import settle
from penstock.client.metadata import BrokerMetadata, read_error
from penstock.client.router import Router
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class GroupClient:
    """Every operation takes `timeout_ms`, the time for all its attempts together."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._coordinators = Coordinators(router, CoordinatorKind.GROUP)

    async def list_groups(self, *, timeout_ms: int | None = None) -> list[ListedGroup]:
        """Groups of every broker, sorted by name."""
        deadline = self._router.deadline(timeout_ms)
        groups = await self._router.persist_with_all(
            "list groups", LIST_CALL, lambda _, answer: read_listed(answer), deadline
        )
        return sorted(groups)

    async def find_coordinator(
        self, group: str, *, timeout_ms: int | None = None
    ) -> BrokerMetadata:
        """Look the coordinator up now, bypassing the cache."""
        return await self._coordinators.find(group, timeout_ms=timeout_ms)

    async def describe(self, group: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """Raises GROUP_ID_NOT_FOUND if the group does not exist."""
        what = f"describe group {group!r}"

        async def ask(node: BrokerMetadata, deadline: Deadline) -> GroupDescription:
            description = await self._describe_consumer(group, node, deadline)
            if description is None:
                call = describe_classic_call(group)
                description = read_classic(
                    await self._router.ask(node.address, call, deadline), node
                )
            if description is None:
                raise RefusedByBroker(what, ErrorCode.GROUP_ID_NOT_FOUND)
            return description

        return await self._coordinators.persist(what, group, ask, timeout_ms)

    async def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets, without partitions that have none. None: of all partitions."""
        call = fetch_offsets_call(group, partitions)

        async def ask(
            node: BrokerMetadata, deadline: Deadline
        ) -> dict[TopicPartition, CommittedOffset]:
            return read_offsets(group, await self._router.ask(node.address, call, deadline))

        return await self._coordinators.persist(
            f"committed offsets of group {group!r}", group, ask, timeout_ms
        )

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Set the offsets as an admin. Refused with UNKNOWN_MEMBER_ID while the group has
        members."""
        what = f"commit offsets of group {group!r}"
        call = commit_offsets_call(group, offsets)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            check_partitions(what, await self._router.ask(node.address, call, deadline))

        await self._coordinators.persist(what, group, ask, timeout_ms)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Delete committed offsets. Refused with GROUP_SUBSCRIBED_TO_TOPIC while a member reads the
        topic."""
        what = f"delete offsets of group {group!r}"
        call = delete_offsets_call(group, partitions)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            answer = await self._router.ask(node.address, call, deadline)
            _check(what, answer)
            check_partitions(what, answer)

        await self._coordinators.persist(what, group, ask, timeout_ms)

    async def remove_members(
        self,
        group: str,
        members: Iterable[MemberToRemove],
        *,
        reason: str = "removed by an administrator",
        timeout_ms: int | None = None,
    ) -> None:
        """Remove members before their sessions expire. A member that still runs joins again."""
        what = f"remove members of group {group!r}"
        call = remove_members_call(group, members, reason)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            settle(read_removed(group, await self._router.ask(node.address, call, deadline)))

        await self._coordinators.persist(what, group, ask, timeout_ms)

    async def delete(self, group: str, *, timeout_ms: int | None = None) -> None:
        """Delete the group and its offsets. Refused with NON_EMPTY_GROUP while it has members."""
        what = f"delete group {group!r}"
        call = delete_group_call(group)
        was_lost = False  # response to an earlier attempt

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            nonlocal was_lost
            try:
                answer = await self._router.ask(node.address, call, deadline)
            except Disconnected:
                was_lost = True
                raise
            for result in answer.results:
                is_gone = read_error(result.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
                if not (was_lost and is_gone):
                    _check(what, result)

        await self._coordinators.persist(what, group, ask, timeout_ms)

    async def _describe_consumer(
        self, group: str, node: BrokerMetadata, deadline: Deadline
    ) -> GroupDescription | None:
        call = describe_consumer_call(group)
        try:
            return read_consumer(await self._router.ask(node.address, call, deadline), node)
        except UnsupportedByBroker:
            return None  # an old broker, which has no consumer groups (KIP-848)


def _check(what: str, result: Any) -> None:
    code = read_error(result.error_code)
    if code:
        raise RefusedByBroker(what, code)
