"""Reads the topic in which messages wait, as any consumer could: no broker keeps a list."""

from collections.abc import Callable

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.errors import RefusedByBroker
from penstock.coordinators.deferred.loader import DeferredLoader, Entry, LoadedMarker
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.model.cluster import DEFERRED_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, Offset, TopicPartition
from penstock.protocol.batch import iter_headers

Replay = Callable[[DeferredRecord], None]


async def count_shards(client: ClusterClient) -> int:
    """0: nothing has ever waited."""
    kept_in = (await client.metadata()).topics.get(DEFERRED_TOPIC)
    return 0 if kept_in is None or not kept_in.exists else len(kept_in.partitions)


async def replay_shard(client: ClusterClient, shard: int, replay: Replay) -> None:
    tp = TopicPartition(DEFERRED_TOPIC, shard)
    transactions = _Transactions(replay)
    position = (await client.list_offsets({tp: EARLIEST}))[tp].offset
    end_offset = (await client.list_offsets({tp: LATEST}))[tp].offset
    while position < end_offset:
        (fetched,) = await client.fetch([FetchFrom(tp, position)])
        if fetched.error is not ErrorCode.NONE:
            raise RefusedByBroker(f"partition {tp}", fetched.error)
        next_position = _replay(fetched.batches, transactions)
        if next_position is None:
            return  # compaction can leave a gap at the end
        position = next_position


class _Transactions:
    """Passes on what is committed, and when: messages of others do not wait, or not yet."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._uncommitted: dict[int, list[MessageRecord]] = {}  # by producer id

    def replay(self, entry: Entry) -> None:
        if isinstance(entry, LoadedMarker):
            messages = self._uncommitted.pop(entry.producer_id, [])
            for number, message in messages if entry.commit else ():
                if message is not None:
                    due_ms = message.due_after(entry.ended_ms)
                    self._replay(MessageRecord(number, message._replace(due_ms=due_ms)))
        elif entry.producer_id != NO_PRODUCER_ID and isinstance(entry.record, MessageRecord):
            self._uncommitted.setdefault(entry.producer_id, []).append(entry.record)
        else:
            self._replay(entry.record)


def _replay(batches: memoryview, transactions: _Transactions) -> Offset | None:
    """The offset after the last whole batch; None: there is none."""
    located = list(iter_headers(batches))
    if not located:
        return None
    position, last = located[-1]
    for entry in DeferredLoader(_ignore).read(bytes(batches[: position + last.size])):
        if entry is not None:
            transactions.replay(entry)
    return Offset(last.next_offset)


def _ignore(damage: str) -> None:
    """The brokers log it."""
