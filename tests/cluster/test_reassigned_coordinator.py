"""A partition of __transaction_state is reassigned while transactions are in every state.

The new coordinator loads each as it was, and each ends as it should.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.transactions.worker_confluent_kafka import Worker
from tests.profile import is_long

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import TransactionalProducerId
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

STATE_TOPIC, FREE, HELD = "__transaction_state", "free", "held"
SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
STATES = {
    "empty": "Empty",
    "ongoing": "Ongoing",
    "prepared": "Ongoing",
    "committing": "PrepareCommit",
    "aborting": "PrepareAbort",
    "committed": "CompleteCommit",
    "aborted": "CompleteAbort",
}
Producers = dict[str, TransactionalProducerId]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        yield cluster


@pytest.mark.skipif(not is_long(), reason="test_exactly_once kills coordinators in `make test`")
def test_transactions_continue_after_their_coordinator_is_reassigned(
    cluster: Cluster,
) -> None:
    cluster.ask(lambda client: client.transactions.init_producer("empty"))
    before, target, holder = choose_brokers(cluster)
    create_on(cluster, FREE, before)
    create_on(cluster, HELD, holder)
    producers = cluster.ask(open_all)
    cluster.kill(holder)
    cluster.ask(lambda client: decide(client, producers))
    cluster.wait(lambda: states_of(cluster), lambda states: states == STATES)
    cluster.ask(lambda client: reassign(client, target))
    cluster.wait_partition(STATE_TOPIC, 0, lambda state: state.replicas == (target,))

    cluster.wait(lambda: states_of(cluster), lambda states: states == STATES)
    assert coordinator_of(cluster, "ongoing") == target
    cluster.ask(lambda client: end_rest(client, producers))
    cluster.start(holder)
    ended = {name: state.replace("Prepare", "Complete") for name, state in STATES.items()}
    ended |= {"ongoing": "CompleteCommit", "prepared": "CompleteCommit"}
    cluster.wait(lambda: states_of(cluster), lambda states: states == ended)
    reader = Worker(cluster.bootstrap_servers)
    assert reader.read(FREE, 0, "read_committed") == ["committed", "ongoing", "prepared"]
    assert reader.read(HELD, 0, "read_committed") == ["committing"]
    for name, heir in cluster.ask(begin_again).items():
        assert heir == producers[name]._replace(producer_epoch=producers[name].producer_epoch + 1)


def choose_brokers(cluster: Cluster) -> tuple[int, int, int]:
    """The coordinator, its successor, and the leader that gets no marker.

    The last one is not the controller, because a controller failover would take longer.
    """
    before = cluster.leader(STATE_TOPIC, 0)
    controller = cluster.controller
    holder = next(number for number in (1, 2, 3) if number not in (before, controller))
    return before, 6 - before - holder, holder


def create_on(cluster: Cluster, topic: str, broker: int) -> None:
    placed = NewTopic(name=topic, assignment={0: (BrokerId(broker),)})
    cluster.ask(lambda client: client.admin.create_topics([placed]))


async def open_all(client: ClusterClient) -> Producers:
    """Begins all transactions; each writes its name, except the empty one."""
    producers: Producers = {}
    for name in ("committed", "aborted", "empty", "ongoing", "prepared", "committing", "aborting"):
        transaction = await RawTransaction.begin(client, name, two_phase=name == "prepared")
        producers[name] = transaction.producer
        topic = HELD if name in ("committing", "aborting") else FREE
        if name != "empty":
            batch = build_batch([Record(offset=0, timestamp_ms=1, key=None, value=name.encode())])
            await transaction.write(TopicPartition(topic, 0), batch)
    for name in ("committed", "aborted"):
        await client.transactions.end(producers[name], commit=name == "committed")
    return producers


async def decide(client: ClusterClient, producers: Producers) -> None:
    """Ends transactions while their markers cannot be delivered yet."""
    for name in ("committing", "aborting"):
        await client.transactions.end(producers[name], commit=name == "committing")


async def reassign(client: ClusterClient, target: int) -> None:
    name = TopicPartition(STATE_TOPIC, 0)
    results = await client.reassignments.alter({name: [target]})
    assert [result.code for result in results.values()] == [ErrorCode.NONE]


async def end_rest(client: ClusterClient, producers: Producers) -> None:
    """Ends the rest. Repeating the same decision succeeds, the opposite one is rejected."""
    for name in ("ongoing", "prepared", "committed"):
        await client.transactions.end(producers[name], commit=True)
    await client.transactions.end(producers["aborted"], commit=False)
    with pytest.raises(RefusedByBroker) as refused:
        await client.transactions.end(producers["aborted"], commit=True)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


async def begin_again(client: ClusterClient) -> Producers:
    return {
        name: (await client.transactions.init_producer(name)).producer for name in sorted(STATES)
    }


def states_of(cluster: Cluster) -> dict[str, str]:
    async def read(client: ClusterClient) -> dict[str, str]:
        return {name: (await client.transactions.describe(name)).state for name in STATES}

    return cluster.ask(read)


def coordinator_of(cluster: Cluster, name: str) -> int:
    return int(cluster.ask(lambda client: client.transactions.describe(name)).coordinator.id)
