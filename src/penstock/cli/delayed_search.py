"""Finds the messages that wait by reading the topic that keeps them, as any consumer could.

No broker keeps a list: what is pending follows from the records. Memory: the messages that wait.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.errors import RefusedByBroker
from penstock.coordinators.deferred.loader import DeferredLoader
from penstock.coordinators.deferred.records import MessageRecord
from penstock.coordinators.deferred.values import DeferredMessage
from penstock.model.cluster import DEFERRED_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.protocol.batch import iter_headers


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
    kept_in = metadata.topics.get(DEFERRED_TOPIC)
    if kept_in is None or not kept_in.exists:
        return []  # nothing has ever waited
    names = {described.topic_id: name for name, described in metadata.topics.items()}
    messages: list[DelayedMessage] = []
    for partition in range(len(kept_in.partitions)):
        pending = await _read_pending(client, TopicPartition(DEFERRED_TOPIC, partition))
        messages += (_describe(message, names) for message in pending.values())
    return sorted(
        (message for message in messages if topic is None or message.topic == topic),
        key=lambda message: (message.due_ms, message.delay_id or ""),
    )


def _describe(message: DeferredMessage, names: Mapping[TopicId | None, str]) -> DelayedMessage:
    return DelayedMessage(
        names.get(message.target.topic_id),
        message.target.partition,
        message.delay_id,
        message.due_ms,
        message.key,
        len(message.value or b""),
    )


async def _read_pending(client: ClusterClient, tp: TopicPartition) -> dict[int, DeferredMessage]:
    """By number."""
    pending: dict[int, DeferredMessage] = {}
    position = (await client.list_offsets({tp: EARLIEST}))[tp].offset
    end_offset = (await client.list_offsets({tp: LATEST}))[tp].offset
    while position < end_offset:
        (fetched,) = await client.fetch([FetchFrom(tp, position)])
        if fetched.error is not ErrorCode.NONE:
            raise RefusedByBroker(f"partition {tp}", fetched.error)
        next_position = _replay(fetched.batches, pending)
        if next_position is None:
            break  # compaction can leave a gap at the end
        position = next_position
    return pending


def _replay(batches: memoryview, pending: dict[int, DeferredMessage]) -> Offset | None:
    """The offset after the last whole batch; None: there is none."""
    located = list(iter_headers(batches))
    if not located:
        return None
    position, last = located[-1]
    for entry in DeferredLoader(_ignore).read(bytes(batches[: position + last.size])):
        match entry:
            case MessageRecord(number, None), _:
                pending.pop(number, None)
            case MessageRecord(number, DeferredMessage() as message), _:
                pending[number] = message
    return Offset(last.next_offset)


def _ignore(damage: str) -> None:
    """The brokers log it."""
