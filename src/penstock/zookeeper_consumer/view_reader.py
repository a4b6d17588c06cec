"""Reads a member's view of its group and of the brokers, and watches what it has read.

Decides nothing. Invariant: every read arms its watch, so that no change after the view goes
unnoticed; one event is enough to read it all again.
"""

import asyncio
from collections.abc import Iterable, Sequence

from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.interface import Session, Value, Watch
from penstock.zookeeper_consumer.assignment import GroupView, RegisteredMember
from penstock.zookeeper_consumer.group_znodes import (
    BROKER_IDS,
    BROKER_TOPICS,
    Registration,
    broker_id_path,
    decode_broker_address,
    decode_partitions,
    decode_registration,
    ids_path,
    member_path,
    topic_path,
)


class ViewReader:
    def __init__(
        self, session: Session, group: str, own: Registration, *, protocol: str, watch: Watch
    ) -> None:
        self._session = session
        self._group = group
        self._own = own
        self._protocol = protocol
        self._watch = watch

    async def read(self) -> GroupView:
        """DamagedZnode if a znode is not what its clients write."""
        members = await self.read_members(self._watch)
        return GroupView(
            members=members,
            partitions=await self._read_partitions(await self._own_topics()),
            brokers=await self._read_brokers(),
        )

    async def read_members(self, watch: Watch | None = None) -> tuple[RegisteredMember, ...]:
        names = await self._children(ids_path(self._group), watch)
        paths = [member_path(self._group, name) for name in names]
        values = await asyncio.gather(*(self._find(path) for path in paths))
        return tuple(
            RegisteredMember(name, decode_registration(path, value.data), value.stat.czxid)
            for name, path, value in zip(names, paths, values, strict=True)
            if value is not None  # it has left meanwhile; the watch tells
        )

    async def _own_topics(self) -> Sequence[str]:
        if self._own.is_static:
            return sorted(self._own.subscription)
        topics = await self._children(BROKER_TOPICS, self._watch)
        return [topic for topic in topics if self._own.streams_of(topic)]

    async def _read_partitions(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Without topics that do not exist; their creation is watched."""
        paths = [topic_path(topic) for topic in topics]
        values = await asyncio.gather(*(self._find_or_await(path) for path in paths))
        return {
            topic: decode_partitions(path, value.data)
            for topic, path, value in zip(topics, paths, values, strict=True)
            if value is not None
        }

    async def _read_brokers(self) -> dict[str, str]:
        brokers = await self._children(BROKER_IDS, self._watch)
        paths = [broker_id_path(broker) for broker in brokers]
        values = await asyncio.gather(*(self._find(path) for path in paths))
        return dict(self._addresses(zip(brokers, paths, values, strict=True)))

    def _addresses(
        self, znodes: Iterable[tuple[str, str, Value | None]]
    ) -> Iterable[tuple[str, str]]:
        for broker, path, value in znodes:
            if value is not None:
                address = decode_broker_address(path, value.data, self._protocol)
                if address is not None:
                    yield broker, address

    async def _find_or_await(self, path: str) -> Value | None:
        try:
            return await self._session.get(path, self._watch)
        except NoNode:
            stat = await self._session.exists(path, self._watch)
            return None if stat is None else await self._find_or_await(path)

    async def _find(self, path: str) -> Value | None:
        try:
            return await self._session.get(path)
        except NoNode:
            return None

    async def _children(self, path: str, watch: Watch | None) -> Sequence[str]:
        """Empty if the parent is missing; its creation is watched."""
        try:
            return await self._session.children(path, watch)
        except NoNode:
            if watch is None or await self._session.exists(path, watch) is None:
                return ()
            return await self._children(path, watch)
