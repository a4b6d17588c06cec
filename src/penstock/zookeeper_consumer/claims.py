"""A member's claims: ephemeral znodes under `owners`, one for each partition that it reads.

Invariant: all partitions of a share are claimed, or none; a claim is released only if it belongs to
this session.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from penstock.metadata_store.errors import MultiFailed, NodeExists, NoNode
from penstock.metadata_store.interface import Create, Session, Watch
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.group_znodes import owner_path, owners_path
from penstock.zookeeper_consumer.offsets_storage import ensure_path

_AT_ONCE = 1000  # claims in one transaction: far below ZooKeeper's limit of a MiB


class ClaimConflict(NamedTuple):
    """Another member owns a partition of this one's share."""

    path: str


class Claims:
    """Of one session."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self.owned: frozenset[TopicPartition] = frozenset()
        self._attempted: set[TopicPartition] = set()  # and perhaps made: an answer was lost

    async def claim(self, threads: Mapping[TopicPartition, str]) -> ClaimConflict | None:
        for topic in sorted({tp.topic for tp in threads}):
            await ensure_path(self._session, f"{owners_path(self._group)}/{topic}")
        creates = [
            Create(path=owner_path(self._group, tp), data=thread.encode(), ephemeral=True)
            for tp, thread in threads.items()
        ]
        self._attempted |= set(threads)
        for index in range(0, len(creates), _AT_ONCE):
            conflict = await self._create(creates[index : index + _AT_ONCE])
            if conflict is not None:
                await self.release()
                return conflict
        self.owned = frozenset(threads)
        return None

    async def release(self) -> None:
        self.owned = frozenset()
        await asyncio.gather(*map(self._release_one, self._attempted))
        self._attempted.clear()

    async def find_owner(self, conflict: ClaimConflict, watch: Watch) -> str | None:
        """The thread that has the partition, and the watch for the moment when it lets go; None:
        it has."""
        try:
            return (await self._session.get(conflict.path, watch)).data.decode(errors="replace")
        except NoNode:
            return None

    async def _create(self, creates: list[Create]) -> ClaimConflict | None:
        try:
            await self._session.multi(creates)
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise failed.error from failed
            return ClaimConflict(creates[failed.failed_index].path)
        return None

    async def _release_one(self, tp: TopicPartition) -> None:
        path = owner_path(self._group, tp)
        with suppress(NoNode):
            value = await self._session.get(path)
            if value.stat.ephemeral_owner == self._session.id:
                await self._session.delete(path)
