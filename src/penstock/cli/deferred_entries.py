"""Reads the topic in which messages wait, as any consumer could: no broker keeps a list."""

from collections.abc import Callable

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.errors import RefusedByBroker
from penstock.coordinators.deferred.loader import DeferredLoader
from penstock.coordinators.deferred.records import DeferredRecord
from penstock.model.cluster import DEFERRED_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers

Replay = Callable[[DeferredRecord], None]


async def count_shards(client: ClusterClient) -> int:
    """0: nothing has ever waited."""
    kept_in = (await client.metadata()).topics.get(DEFERRED_TOPIC)
    return 0 if kept_in is None or not kept_in.exists else len(kept_in.partitions)


async def replay_shard(client: ClusterClient, shard: int, replay: Replay) -> None:
    tp = TopicPartition(DEFERRED_TOPIC, shard)
    position = (await client.list_offsets({tp: EARLIEST}))[tp].offset
    end_offset = (await client.list_offsets({tp: LATEST}))[tp].offset
    while position < end_offset:
        (fetched,) = await client.fetch([FetchFrom(tp, position)])
        if fetched.error is not ErrorCode.NONE:
            raise RefusedByBroker(f"partition {tp}", fetched.error)
        next_position = _replay(fetched.batches, replay)
        if next_position is None:
            return  # compaction can leave a gap at the end
        position = next_position


def _replay(batches: memoryview, replay: Replay) -> Offset | None:
    """The offset after the last whole batch; None: there is none."""
    located = list(iter_headers(batches))
    if not located:
        return None
    position, last = located[-1]
    for entry in DeferredLoader(_ignore).read(bytes(batches[: position + last.size])):
        if entry is not None:
            replay(entry[0])
    return Offset(last.next_offset)


def _ignore(damage: str) -> None:
    """The brokers log it."""
