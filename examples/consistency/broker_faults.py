"""What the programs of this folder do to the brokers of a cluster, and how they look at them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self

import penstock
from penstock.client.metadata import PartitionMetadata
from penstock.client.producer import Acks
from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import iter_records
from penstock.testing import Cluster

# A frozen broker stays registered however slow the machine is; `kill` ends sessions by hand.
SETTINGS = {"zookeeper.session.timeout.ms": 60_000, "auto.create.topics.enable": False}
PATIENCE_S = 180.0


def create(
    cluster: Cluster,
    topics: Mapping[str, Mapping[str, str]],
    brokers: tuple[int, ...],
    first: str,
) -> None:
    """Topics with one partition on these brokers, of which the first one leads, and one record."""
    new = [
        penstock.NewTopic(topic, assignment={0: brokers}, configs=configs)
        for topic, configs in topics.items()
    ]
    with penstock.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics(new)
    wait_in_sync(cluster, topics, brokers)
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for sent in [producer.send(topic, first, partition=0) for topic in topics]:
            sent.result(PATIENCE_S)  # acks=all: every follower fetches the topic


class Freezer:
    """Freezes followers, so that they get no record any more and stay in sync for a while.

    A frozen follower has still a fetch waiting at the leader. A record of another topic answers it,
    so that no later record does.
    """

    def __init__(self, cluster: Cluster, leader: int) -> None:
        self._cluster = cluster
        self._topic = f"bell-{leader}"
        brokers = (leader, *({1, 2, 3} - {leader}))
        create(cluster, {self._topic: {}}, brokers, "before")
        self._producer = producer_at(cluster, leader, acks=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def freeze(self, *followers: int) -> None:
        for follower in followers:
            self._cluster.pause(follower)
        self._producer.send_and_wait(self._topic, "for the fetch that waits", partition=0)


def producer_at(cluster: Cluster, broker: int, *, acks: Acks) -> penstock.Producer:
    """Asks this broker alone, because others may be frozen. It sends each record once."""
    address = cluster.bootstrap_servers.split(",")[broker - 1]
    return penstock.Producer(address, acks=acks, idempotent=False, retries=0, linger_ms=0)


def kill(cluster: Cluster, broker: int, *, wakes: Iterable[int] = ()) -> None:
    """kill -9, and the end of its session, for which we do not wait: the broker's znodes go as
    ZooKeeper removes them after `zookeeper.session.timeout.ms`. Frozen brokers wake in between."""
    cluster.kill(broker)
    for frozen in wakes:
        cluster.resume(frozen)
    asyncio.run(_remove_ephemerals(cluster.zookeeper, broker))


async def _remove_ephemerals(zookeeper: str, broker: int) -> None:
    store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(zookeeper))
    session = await store.open_session()
    registration = f"/brokers/ids/{broker}"
    owner = (await session.get(registration)).stat.ephemeral_owner
    with suppress(NoNode):
        if (await session.get("/controller")).stat.ephemeral_owner == owner:
            await session.delete("/controller")
    await session.delete(registration)
    await store.close()


def partitions(cluster: Cluster, topics: Sequence[str]) -> list[PartitionMetadata]:
    metadata = cluster.ask(lambda client: client.metadata(topics))
    states = [metadata.find_partition(topic, 0) for topic in topics]
    return [state for state in states if state is not None]


def wait_all(
    cluster: Cluster, topics: Iterable[str], is_so: Callable[[PartitionMetadata], bool]
) -> None:
    names = list(topics)

    def look() -> list[PartitionMetadata]:
        return partitions(cluster, names)

    cluster.wait(look, lambda states: len(states) == len(names) and all(map(is_so, states)))


def wait_in_sync(cluster: Cluster, topics: Iterable[str], brokers: Iterable[int]) -> None:
    wanted = set(brokers)
    wait_all(cluster, topics, lambda state: state.leader >= 0 and set(state.in_sync) == wanted)


def wait_led(cluster: Cluster, topics: Iterable[str], by: Iterable[int]) -> None:
    """-1: by nobody."""
    wanted = set(by)
    wait_all(cluster, topics, lambda state: state.leader in wanted)


def stored(cluster: Cluster, broker: int, topic: str) -> list[str]:
    """The records in the broker's files, committed or not, whether it runs or not."""
    return [value for value, _ in stored_with_epochs(cluster, broker, topic)]


def stored_with_epochs(cluster: Cluster, broker: int, topic: str) -> list[tuple[str, int]]:
    """The same, with the epochs of the leaders that wrote them."""
    paths = sorted(cluster.data(broker).glob(f"{topic}-0/*.log"))
    return [record for path in paths for record in records_of(path.read_bytes())]


def records_of(batches: bytes | memoryview) -> list[tuple[str, int]]:
    """Values and leader epochs; without a batch that is still being written."""
    return [
        ((record.value or b"").decode(), header.leader_epoch)
        for position, header in iter_headers(batches)
        for record in iter_records(batches[position : position + header.size])
    ]


def wait_stored(cluster: Cluster, broker: int, topic: str, values: list[str]) -> None:
    cluster.wait(lambda: stored(cluster, broker, topic), values.__eq__)
