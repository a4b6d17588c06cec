"""A partition's records one by one: sent, read by clients, and found in a broker's own files.

What a broker has stored is read from its folder: no client sees what is not committed.
"""

import time
from collections.abc import Mapping

from penstock.client.admin_values import NewTopic
from penstock.client.data_calls import LATEST, FetchFrom, Produced
from penstock.model.cluster import BrokerId
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.testing import Cluster

ALL = -1
LEADER = 1


def create_on(
    cluster: Cluster, topic: str, brokers: tuple[int, ...], config: Mapping[str, str] | None = None
) -> None:
    """One partition, on these brokers; the first leads it."""
    replicas = tuple(map(BrokerId, brokers))
    new = NewTopic(name=topic, assignment={0: replicas}, configs=dict(config or {}))
    cluster.ask(lambda client: client.admin.create_topics([new]))
    cluster.wait_in_sync(topic, 0, len(brokers))


def send(cluster: Cluster, topic: str, value: str, *, acks: int = ALL, partition: int = 0) -> int:
    """The offset it got."""
    batch = make_batch(value)
    place = TopicPartition(topic, partition)
    produced: Produced = cluster.ask(lambda client: client.produce(place, batch, acks=acks))
    return int(produced.base_offset)


def make_batch(value: str) -> bytearray:
    return build_batch([Record(Offset(0), int(time.time() * 1000), None, value.encode(), ())])


def read(cluster: Cluster, topic: str, partition: int = 0) -> list[str]:
    """What a consumer gets: all that is committed. Few enough for one fetch."""
    wanted = FetchFrom(TopicPartition(topic, partition), Offset(0))
    (fetched,) = cluster.ask(lambda client: client.fetch([wanted], max_wait_ms=0))
    return _values(fetched.batches)


def high_watermark(cluster: Cluster, topic: str, partition: int = 0) -> int:
    place = TopicPartition(topic, partition)
    listed = cluster.ask(lambda client: client.list_offsets({place: LATEST}))
    return int(listed[place].offset)


def stored(cluster: Cluster, broker_id: int, topic: str, partition: int = 0) -> list[str]:
    """What lies in the broker's folder, committed or not, whether it runs or not."""
    folder = cluster.data(broker_id) / f"{topic}-{partition}"
    return [each for log in sorted(folder.glob("*.log")) for each in _values(log.read_bytes())]


def wait_stored(cluster: Cluster, broker_id: int, topic: str, values: list[str]) -> None:
    cluster.wait(lambda: stored(cluster, broker_id, topic), lambda found: found == values)


def _values(batches: bytes | memoryview) -> list[str]:
    """A batch that is still being written is left out."""
    return [
        (record.value or b"").decode()
        for position, header in iter_headers(batches)
        for record in iter_records(batches[position : position + header.size])
    ]
