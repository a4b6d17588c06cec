"""Where a group keeps its offsets: ZooKeeper, Kafka, or both while a group moves from one to the
other.

Does not decide which offsets. Invariant: what is committed to ZooKeeper goes through the session
that owns the partitions, so that a member whose session has expired commits nothing.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol

from penstock.metadata_store.errors import NodeExists, NoNode
from penstock.metadata_store.interface import Session
from penstock.metadata_store.paths import parent_of
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.decisions import newest_offset
from penstock.zookeeper_consumer.group_znodes import decode_offset, encode_offset, offset_path
from penstock.zookeeper_consumer.partition_reader import PartitionReader

Stored = dict[TopicPartition, int | None]


class OffsetsStorage(Protocol):
    async def fetch(self, tps: Collection[TopicPartition]) -> Stored: ...
    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class OffsetZnodes:
    """MetadataStoreError: then it is unknown how much of it was done."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def fetch(self, tps: Collection[TopicPartition]) -> Stored:
        offsets = await asyncio.gather(*map(self._fetch_one, tps))
        return dict(zip(tps, offsets, strict=True))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await asyncio.gather(*(self._commit_one(tp, offset) for tp, offset in offsets.items()))

    async def _fetch_one(self, tp: TopicPartition) -> int | None:
        try:
            return decode_offset((await self._session.get(offset_path(self._group, tp))).data)
        except NoNode:
            return None

    async def _commit_one(self, tp: TopicPartition, offset: int) -> None:
        path, data = offset_path(self._group, tp), encode_offset(offset)
        try:
            await self._session.set(path, data)
        except NoNode:
            await ensure_path(self._session, parent_of(path))
            try:
                await self._session.create(path, data)
            except NodeExists:
                await self._session.set(path, data)


class KafkaOffsets:
    """ConsumeFailed. Not fenced: the coordinator knows no members of this group."""

    def __init__(self, reader: PartitionReader, timeout_s: float) -> None:
        self._reader = reader
        self._timeout_s = timeout_s

    async def fetch(self, tps: Collection[TopicPartition]) -> Stored:
        offsets = await asyncio.to_thread(self._reader.committed, tps, self._timeout_s)
        return {tp: offsets.get(tp) for tp in tps}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await asyncio.to_thread(self._reader.commit, offsets)


class DualOffsets:
    """Commits to both and reads the larger of both, so that members may change over one by one."""

    def __init__(self, first: OffsetsStorage, second: OffsetsStorage) -> None:
        self._stores = first, second

    async def fetch(self, tps: Collection[TopicPartition]) -> Stored:
        first, second = [await store.fetch(tps) for store in self._stores]
        return {tp: newest_offset(first[tp], second[tp]) for tp in tps}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        for store in self._stores:
            await store.commit(offsets)


async def ensure_path(session: Session, path: str) -> None:
    """Create the znode and its parents where they are missing."""
    if path == "/" or await session.exists(path) is not None:
        return
    await ensure_path(session, parent_of(path))
    with suppress(NodeExists):
        await session.create(path)
