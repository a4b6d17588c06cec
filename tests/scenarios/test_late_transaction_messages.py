"""EndTxn and markers that arrive late, after a retry, change nothing in the open transaction.

In transactions v2 (KIP-890) every transaction has its own producer epoch, which identifies late
messages. Older producers keep their epoch: there, a new incarnation of the producer and the
connection that it uses identify them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import randrange
from uuid import uuid4

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.transactions.java_workers import java_worker
from tests.clients.transactions.scenarios import wait_decided
from tests.clients.transactions.workers import Worker, python_worker
from tests.clients.under_test import BrokerUnderTest
from tests.profile import is_long
from tests.scenarios.delaying_proxy import DelayingProxy

import penstock
from penstock.client.admin_values import NewTopic
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

pytestmark = pytest.mark.xdist_group("transactions-java")

VERSION = "4.4.0"  # the Java client with transactions v2
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
LEFT_BEHIND = {ErrorCode.CONCURRENT_TRANSACTIONS}
ONE_REPLICA = {
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
}

StartWorker = Callable[[Sequence[str]], Worker]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[Worker] = []

    def start(command: Sequence[str]) -> Worker:
        workers.append(Worker(command, tmp_path / f"worker-{len(workers)}.log"))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


@contextmanager
def behind_proxy(proxy: DelayingProxy, **config: object) -> Iterator[BrokerUnderTest]:
    """Runs a broker that advertises the proxy's address.

    The proxy forwards even before the broker is ready, because the controller sends it requests
    first.
    """
    settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", **config}
    listen = f"127.0.0.1:{find_port()}"
    proxy.forward_to(listen)
    with penstock.Broker(listen=listen, config=settings) as broker:
        yield BrokerUnderTest(bootstrap_servers=proxy.address, data=broker.data)


def find_port() -> int:
    """A free port outside the range from which the system assigns ports."""
    while True:
        port = randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def check_still_open(worker: Worker, tp: TopicPartition, committed: list[str]) -> None:
    """Checks that the last record is in an open transaction."""
    assert worker.read(*tp) == committed
    assert len(worker.read(*tp, isolation="read_uncommitted")) > len(committed)


@pytest.mark.parametrize(
    "client", ["java", "confluent-kafka"] if is_long() else ["confluent-kafka"]
)
def test_a_late_end_txn_does_not_end_the_next_transaction(
    start_worker: StartWorker, client: str
) -> None:
    with DelayingProxy() as proxy, behind_proxy(proxy) as broker:
        tp = TopicPartition(new_topic(broker, partitions=1), 0)
        if client == "java":
            command, refusals = java_worker(VERSION, proxy.address, print).command, FENCED
        else:
            command, refusals = python_worker(client, proxy.address), LEFT_BEHIND
        worker = start_worker(command).open(new_name())
        for late, next_one in (("commit", "abort"), ("abort", "commit")):
            shown = worker.read(*tp)
            worker.begin()
            worker.send(*tp, f"ended late: {late}")
            proxy.hold(ApiKey.END_TXN)
            worker.tell(late)
            held = proxy.wait_held()
            proxy.let_pass()
            worker.wait_result()  # the client has retried
            wait_decided(broker, [tp])
            shown += [f"ended late: {late}"] if late == "commit" else []

            worker.begin()
            worker.send(*tp, f"next: {next_one}")
            assert held.deliver().error_code in refusals
            check_still_open(worker, tp, shown)
            worker.ask(next_one)
            wait_decided(broker, [tp])
            shown += [f"next: {next_one}"] if next_one == "commit" else []
            assert worker.read(*tp) == shown
        assert shown == ["ended late: commit", "next: commit"]


def test_a_late_commit_of_a_killed_producer_does_not_commit_its_successors_transaction(
    start_worker: StartWorker,
) -> None:
    """With librdkafka, which uses transactions v1."""
    with DelayingProxy() as proxy, behind_proxy(proxy) as broker:
        tp = TopicPartition(new_topic(broker, partitions=1), 0)
        command, name = python_worker("confluent-kafka", broker.bootstrap_servers), new_name()
        killed = start_worker(command).open(name)
        killed.begin()
        killed.send(*tp, "of the killed")
        proxy.hold(ApiKey.END_TXN)
        killed.tell("commit")
        held = proxy.wait_held()
        killed.kill()
        proxy.let_pass()

        successor = start_worker(command).open(name)
        successor.begin()
        successor.send(*tp, "of the successor")
        assert held.deliver().error_code in FENCED
        check_still_open(successor, tp, [])
        successor.abort()
        wait_decided(broker, [tp])
        assert successor.read(*tp) == []


def test_a_late_marker_does_not_end_the_next_transaction(
    start_worker: StartWorker, zookeeper_connect: str
) -> None:
    """One broker coordinates; the other leads the partition, behind the proxy."""
    with two_brokers(f"{zookeeper_connect}/{uuid4().hex}") as (broker, proxies):
        worker = start_worker(java_worker(VERSION, broker.bootstrap_servers, print).command)
        name = new_name()
        worker.open(name)
        coordinator = ask(broker, lambda client: client.transactions.describe(name)).coordinator.id
        leader = next(broker_id for broker_id in proxies if broker_id != coordinator)
        tp = TopicPartition(create_on(broker, leader), 0)

        worker.begin()
        worker.send(*tp, "marked late")
        proxies[leader].hold(ApiKey.WRITE_TXN_MARKERS)
        worker.commit()
        held = proxies[leader].wait_held()
        proxies[leader].let_pass()
        wait_decided(broker, [tp])

        worker.begin()
        worker.send(*tp, "next")
        (marker,) = held.deliver().markers
        assert [partition.error_code in FENCED for partition in marker.topics[0].partitions] == [
            True
        ]
        check_still_open(worker, tp, ["marked late"])
        worker.abort()
        wait_decided(broker, [tp])
        assert worker.read(*tp) == ["marked late"]


@contextmanager
def two_brokers(connect: str) -> Iterator[tuple[BrokerUnderTest, dict[int, DelayingProxy]]]:
    with ExitStack() as stack:
        proxies = {number: stack.enter_context(DelayingProxy()) for number in (1, 2)}
        brokers = [
            stack.enter_context(
                behind_proxy(
                    proxy, **ONE_REPLICA, **{"zookeeper.connect": connect, "broker.id": number}
                )
            )
            for number, proxy in proxies.items()
        ]
        yield brokers[0], proxies


def create_on(broker: BrokerUnderTest, leader: int) -> str:
    name = new_name()
    topic = NewTopic(name=name, assignment={0: (BrokerId(leader),)})
    ask(broker, lambda client: client.admin.create_topics([topic]))
    return name
