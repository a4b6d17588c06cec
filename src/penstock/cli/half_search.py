"""Finds half ids and what became of them, by reading the topic that keeps them."""

from typing import NamedTuple

from penstock.cli.deferred_entries import count_shards, replay_shard
from penstock.client.cluster import ClusterClient
from penstock.coordinators.deferred.half_records import HalfIdRecord
from penstock.coordinators.deferred.half_values import Half, HalfStatus
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey


class FoundHalf(NamedTuple):
    group: str
    half_id: str
    status: HalfStatus
    since_ms: int
    checks: int
    topics: tuple[str, ...]  # of its messages that are kept
    messages: int


async def find_halves(client: ClusterClient) -> list[FoundHalf]:
    """All that are known, those that have waited longest first."""
    halves: list[FoundHalf] = []
    for shard in range(await count_shards(client)):
        search = _Search()
        await replay_shard(client, shard, search.replay)
        halves += search.halves()
    return sorted(halves, key=lambda half: (half.since_ms, half.half_id))


class _Search:
    def __init__(self) -> None:
        self._halves: dict[HalfKey, Half] = {}
        self._kept: dict[int, DeferredMessage] = {}  # by number

    def replay(self, record: DeferredRecord) -> None:
        match record:
            case HalfIdRecord(key, None):
                self._halves.pop(key, None)
            case HalfIdRecord(key, Half() as half):
                self._halves[key] = half
            case MessageRecord(number, None):
                self._kept.pop(number, None)
            case MessageRecord(number, DeferredMessage() as message) if message.hold is not None:
                self._kept[number] = message

    def halves(self) -> list[FoundHalf]:
        topics: dict[HalfKey, list[str]] = {}
        for message in self._kept.values():
            assert message.hold is not None
            topics.setdefault(message.hold.key, []).append(message.hold.topic)
        return [
            FoundHalf(
                key.group,
                key.half_id,
                half.status,
                half.since_ms,
                half.checks,
                tuple(sorted(set(topics.get(key, ())))),
                len(topics.get(key, ())),
            )
            for key, half in self._halves.items()
        ]
