"""Committed offsets in ZooKeeper, as Kafka kept them before 0.9.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as text; metadata, epochs and
timestamps are not kept, and nothing expires. Does not check who may commit: the group does.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.coordinators.group.offsets.commands import NO_OFFSET
from penstock.coordinators.group.requests import FetchedOffset, OffsetCommit
from penstock.metadata_store.errors import (
    InvalidPath,
    MetadataStoreError,
    NodeExists,
    NoNode,
    NotEmpty,
)
from penstock.metadata_store.interface import Session
from penstock.metadata_store.paths import check_path, parent_of
from penstock.model.ids import TopicPartition

ROOT = "/consumers"


class OffsetsStore(Protocol):
    """A store of committed offsets outside the log."""

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None: ...

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None
    ) -> tuple[FetchedOffset, ...]: ...

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None: ...

    async def delete_topics(self, topics: Iterable[str]) -> None: ...

    async def has_group(self, group: str) -> bool: ...

    async def groups(self) -> list[str]: ...


class ZooKeeperOffsets:
    """Every method may raise MetadataStoreError; then it is unknown how much of it was done."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None:
        for commit in offsets:
            await self._put(_path(group, commit.tp), str(commit.offset).encode())

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None
    ) -> tuple[FetchedOffset, ...]:
        if partitions is None:
            stored = await self._all_of(group)
            return tuple(offset for offset in stored if offset.offset != NO_OFFSET)
        return tuple([await self._get(group, tp) for tp in partitions])

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offset and parent znodes that become empty."""
        for tp in partitions:
            path = _path(group, tp)
            await self._remove(path)
            for _ in ("topic", "offsets", "group"):
                path = parent_of(path)
                if not await self._remove(path):
                    break

    async def delete_topics(self, topics: Iterable[str]) -> None:
        deleted = frozenset(topics)
        for group in await self.groups():
            stored = [offset.tp for offset in await self._all_of(group)]
            await self.delete(group, (tp for tp in stored if tp.topic in deleted))

    async def has_group(self, group: str) -> bool:
        return await self._session.exists(f"{ROOT}/{group}/offsets") is not None

    async def groups(self) -> list[str]:
        names = await self._children(ROOT)
        return [name for name in names if await self.has_group(name)]

    async def _all_of(self, group: str) -> list[FetchedOffset]:
        parent = f"{ROOT}/{group}/offsets"
        stored: list[TopicPartition] = []
        for topic in await self._children(parent):
            names = await self._children(f"{parent}/{topic}")
            stored += [TopicPartition(topic, int(name)) for name in names if name.isdecimal()]
        return [await self._get(group, tp) for tp in sorted(stored)]

    async def _get(self, group: str, tp: TopicPartition) -> FetchedOffset:
        try:
            value = await self._session.get(_path(group, tp))
            offset = int(value.data)
        except (NoNode, ValueError):  # missing, or not an offset
            offset = NO_OFFSET
        return FetchedOffset(tp, offset, -1, "")

    async def _children(self, path: str) -> tuple[str, ...]:
        try:
            return await self._session.children(path)
        except NoNode:
            return ()

    async def _put(self, path: str, data: bytes) -> None:
        try:
            await self._session.set(path, data)
        except NoNode:
            await self._create(parent_of(path))
            try:
                await self._session.create(path, data)
            except NodeExists:
                await self._session.set(path, data)

    async def _create(self, path: str) -> None:
        """Create the znode with all its parents."""
        if path == "/" or await self._session.exists(path) is not None:
            return
        await self._create(parent_of(path))
        try:
            await self._session.create(path)
        except NodeExists:
            return

    async def _remove(self, path: str) -> bool:
        try:
            await self._session.delete(path)
        except (NoNode, NotEmpty):
            return False
        return True


def can_be_named(group: str) -> bool:
    """Whether the group id is a valid znode name."""
    try:
        check_path(f"{ROOT}/{group}/offsets")
    except InvalidPath:
        return False
    return "/" not in group


def _path(group: str, tp: TopicPartition) -> str:
    topic, partition = tp
    return f"{ROOT}/{group}/offsets/{topic}/{partition}"


__all__ = ["MetadataStoreError", "OffsetsStore", "ZooKeeperOffsets", "can_be_named"]
