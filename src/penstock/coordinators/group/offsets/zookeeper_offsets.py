"""Committed offsets in ZooKeeper, as Kafka kept them before 0.9.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as text; metadata, epochs and
timestamps are not kept, and nothing expires. Does not check who may commit: the group does.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.coordinators.group.offsets.migration import MigratedOffset, ZnodeOffset
from penstock.coordinators.group.requests import OffsetCommit
from penstock.metadata_store.errors import (
    BadVersion,
    InvalidPath,
    MetadataStoreError,
    NodeExists,
    NoNode,
    NotEmpty,
)
from penstock.metadata_store.interface import Session, WatchEvent
from penstock.metadata_store.paths import check_path, parent_of
from penstock.model.ids import TopicPartition

ROOT = "/consumers"
REQUESTS_AT_ONCE = 500


class OffsetsStore(Protocol):
    """A store of committed offsets outside the log."""

    @property
    def has_some(self) -> bool:
        """Whether it had a group when it was last looked at."""

    async def may_have(self, group: str) -> bool:
        """False: it has no offset of the group. Costs no request while the groups stay the same."""

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None: ...

    async def find_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ZnodeOffset]:
        """Those that exist, of all partitions or of these."""

    async def put_migrated(
        self, group: str, offsets: Mapping[TopicPartition, MigratedOffset]
    ) -> None:
        """Each only if nobody has committed since it was decided."""

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None: ...

    async def delete_all(self, group: str) -> None: ...

    async def delete_topics(self, topics: Iterable[str]) -> None: ...

    async def has_group(self, group: str) -> bool: ...

    async def has_members(self, group: str) -> bool:
        """Consumers that registered there, as before 0.9: they commit there too."""

    async def groups(self) -> list[str]: ...


class ZooKeeperOffsets:
    """Every method may raise MetadataStoreError; then it is unknown how much of it was done."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: frozenset[str] | None = None  # children of ROOT, watched; None: read them
        self._changes = 0  # of the names, as far as a watch has told

    @property
    def has_some(self) -> bool:
        return bool(self._names)

    async def may_have(self, group: str) -> bool:
        return group in await self._all_names()

    async def commit(self, group: str, offsets: Sequence[OffsetCommit]) -> None:
        if self._names is not None and group not in self._names and offsets:
            self._names |= {group}  # the watch fires later
        for commit in offsets:
            await self._put(_path(group, commit.tp), str(commit.offset).encode())

    async def find_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ZnodeOffset]:
        tps = list(await self._partitions_of(group) if partitions is None else partitions)
        stored: dict[TopicPartition, ZnodeOffset] = {}
        for at in range(0, len(tps), REQUESTS_AT_ONCE):
            chunk = tps[at : at + REQUESTS_AT_ONCE]
            offsets = await asyncio.gather(*(self._get(group, tp) for tp in chunk))
            stored.update((tp, o) for tp, o in zip(chunk, offsets, strict=True) if o is not None)
        return stored

    async def put_migrated(
        self, group: str, offsets: Mapping[TopicPartition, MigratedOffset]
    ) -> None:
        for tp, (offset, version) in offsets.items():
            path, data = _path(group, tp), str(offset).encode()
            try:
                if version is not None:
                    await self._session.set(path, data, version)
                else:
                    await self._create(parent_of(path))
                    await self._session.create(path, data)
            except (BadVersion, NodeExists, NoNode):
                continue  # a commit or a deletion came first

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offset and parent znodes that become empty."""
        for tp in partitions:
            path = _path(group, tp)
            await self._remove(path)
            for _ in ("topic", "offsets", "group"):
                path = parent_of(path)
                if not await self._remove(path):
                    break

    async def delete_all(self, group: str) -> None:
        await self.delete(group, await self._partitions_of(group))

    async def delete_topics(self, topics: Iterable[str]) -> None:
        deleted = frozenset(topics)
        for group in await self.groups():
            stored = await self._partitions_of(group)
            await self.delete(group, (tp for tp in stored if tp.topic in deleted))

    async def has_group(self, group: str) -> bool:
        return await self._session.exists(f"{ROOT}/{group}/offsets") is not None

    async def has_members(self, group: str) -> bool:
        return bool(await self._children(f"{ROOT}/{group}/ids"))

    async def groups(self) -> list[str]:
        names = sorted(await self._all_names())
        stored: list[str] = []
        for at in range(0, len(names), REQUESTS_AT_ONCE):
            chunk = names[at : at + REQUESTS_AT_ONCE]
            are_groups = await asyncio.gather(*map(self.has_group, chunk))
            stored += (name for name, is_group in zip(chunk, are_groups, strict=True) if is_group)
        return stored

    async def _all_names(self) -> frozenset[str]:
        while self._names is None:
            changes = self._changes
            try:
                names = await self._session.children(ROOT, self._on_names_changed)
            except NoNode:
                if await self._session.exists(ROOT, self._on_names_changed) is not None:
                    continue
                names = ()
            if changes == self._changes:
                self._names = frozenset(names)
        return self._names

    def _on_names_changed(self, event: WatchEvent) -> None:
        self._changes += 1
        self._names = None

    async def _partitions_of(self, group: str) -> list[TopicPartition]:
        parent = f"{ROOT}/{group}/offsets"
        stored: list[TopicPartition] = []
        for topic in await self._children(parent):
            names = await self._children(f"{parent}/{topic}")
            stored += [TopicPartition(topic, int(name)) for name in names if name.isdecimal()]
        return sorted(stored)

    async def _get(self, group: str, tp: TopicPartition) -> ZnodeOffset | None:
        try:
            value = await self._session.get(_path(group, tp))
            offset = int(value.data)
        except (NoNode, ValueError):  # missing, or not an offset
            return None
        if offset < 0:
            return None
        return ZnodeOffset(offset, value.stat.mtime_ms, value.stat.version)

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
