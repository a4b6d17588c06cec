"""Finds the messages that wait by reading the topic that keeps them, as any consumer could.

No broker keeps a list: what is pending follows from the records. Memory: the messages that wait.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.cli.deferred_entries import count_shards, replay_shard
from penstock.client.cluster import ClusterClient
from penstock.coordinators.deferred.half_records import HalfIdRecord
from penstock.coordinators.deferred.half_values import Half, HalfStatus
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey
from penstock.model.ids import TopicId


class DelayedMessage(NamedTuple):
    topic: str | None  # None: it is deleted
    partition: int
    delay_id: str | None
    due_ms: int
    key: bytes | None
    size_bytes: int  # of the value


async def find_delayed(client: ClusterClient, topic: str | None) -> list[DelayedMessage]:
    """By when they are due."""
    metadata = await client.metadata()
    names = {described.topic_id: name for name, described in metadata.topics.items()}
    messages: list[DelayedMessage] = []
    for shard in range(await count_shards(client)):
        search = _Search()
        await replay_shard(client, shard, search.replay)
        messages += (_describe(message, names) for message in search.waiting())
    return sorted(
        (message for message in messages if topic is None or message.topic == topic),
        key=lambda message: (message.due_ms, message.delay_id or ""),
    )


class _Search:
    def __init__(self) -> None:
        self._pending: dict[int, DeferredMessage] = {}  # by number
        self._committed_ms: dict[HalfKey, int] = {}

    def replay(self, record: DeferredRecord) -> None:
        match record:
            case MessageRecord(number, None):
                self._pending.pop(number, None)
            case MessageRecord(number, DeferredMessage() as message):
                self._pending[number] = message
            case HalfIdRecord(key, Half() as half) if half.status is HalfStatus.COMMITTED:
                self._committed_ms[key] = half.since_ms

    def waiting(self) -> Iterator[DeferredMessage]:
        """Without halves that are not committed: `penstock half list` has them."""
        for message in self._pending.values():
            hold = message.hold
            if hold is None:
                yield message
            elif hold.key in self._committed_ms:
                due_ms = self._committed_ms[hold.key] + hold.delay_ms
                yield message._replace(due_ms=max(message.due_ms, due_ms))


def _describe(message: DeferredMessage, names: Mapping[TopicId | None, str]) -> DelayedMessage:
    return DelayedMessage(
        names.get(message.target.topic_id),
        message.target.partition,
        message.delay_id,
        message.due_ms,
        message.key,
        len(message.value or b""),
    )
