"""Committed offsets in the coordination tree, as Kafka kept them before 0.9: the second keeper.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as text; notes, epochs and times
have no place there, and nothing expires. Who may commit is the group's matter, not this one's.
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
    """Where offsets are kept when not in the log."""

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None: ...

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None
    ) -> tuple[FetchedOffset, ...]: ...

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None: ...

    async def delete_topics(self, topics: Iterable[str]) -> None: ...

    async def has_group(self, group: str) -> bool: ...

    async def groups(self) -> list[str]: ...


class ZooKeeperOffsets:
    """Every method may raise CoordinationError: then nobody knows how much of it was done."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None:
        for each in offsets:
            await self._put(_path(group, each.partition), str(each.offset).encode())

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None
    ) -> tuple[FetchedOffset, ...]:
        if partitions is None:
            found = [each for each in await self._all_of(group) if each.offset != NO_OFFSET]
        else:
            found = [await self._get(group, each) for each in partitions]
        return tuple(found)

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Folders that become empty go with them."""
        for each in partitions:
            path = _path(group, each)
            await self._remove(path)
            for _ in ("topic", "offsets", "group"):
                path = parent_of(path)
                if not await self._remove(path):
                    break

    async def delete_topics(self, topics: Iterable[str]) -> None:
        gone = frozenset(topics)
        for group in await self.groups():
            found = [each.partition for each in await self._all_of(group)]
            await self.delete(group, (each for each in found if each.topic in gone))

    async def has_group(self, group: str) -> bool:
        return await self._session.exists(f"{ROOT}/{group}/offsets") is not None

    async def groups(self) -> list[str]:
        names = await self._children(ROOT)
        return [name for name in names if await self.has_group(name)]

    async def _all_of(self, group: str) -> list[FetchedOffset]:
        folder = f"{ROOT}/{group}/offsets"
        found: list[TopicPartition] = []
        for topic in await self._children(folder):
            numbers = await self._children(f"{folder}/{topic}")
            found += [TopicPartition(topic, int(each)) for each in numbers if each.isdecimal()]
        return [await self._get(group, each) for each in sorted(found)]

    async def _get(self, group: str, partition: TopicPartition) -> FetchedOffset:
        try:
            value = await self._session.get(_path(group, partition))
            offset = int(value.data)
        except (NoNode, ValueError):  # not there, or not written by anything like us
            offset = NO_OFFSET
        return FetchedOffset(partition, offset, -1, "")

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
        """With all above it."""
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
    """Whether the group's name can be a node's."""
    try:
        check_path(f"{ROOT}/{group}/offsets")
    except InvalidPath:
        return False
    return "/" not in group


def _path(group: str, partition: TopicPartition) -> str:
    return f"{ROOT}/{group}/offsets/{partition.topic}/{partition.partition}"


__all__ = ["MetadataStoreError", "OffsetsStore", "ZooKeeperOffsets", "can_be_named"]
