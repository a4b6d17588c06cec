"""EndTxn and markers that arrive long after they were sent, and were repeated meanwhile: they
change nothing in the transaction that is open by then.

Producers of transactions v2 (KIP-890) are told apart by the epoch of each transaction. Those before
them keep their epoch from one to the next: there, a new life of the producer is told from the old,
and a connection that the producer has left from the one it uses now.
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
from tests.clients.transactions.story import wait_decided
from tests.clients.transactions.workers import Worker, python_worker
from tests.clients.under_test import BrokerUnderTest
from tests.scenarios.late_gate import LateGate

import penstock
from penstock.client.admin_values import NewTopicSpec
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

pytestmark = pytest.mark.xdist_group("transactions-java")

VERSION = "4.4.0"  # of the Java client: it speaks transactions v2
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
def behind_gate(gate: LateGate, **config: object) -> Iterator[BrokerUnderTest]:
    """A broker that tells everybody to come through the gate, also before it is ready: a controller
    has something to say to it first."""
    settings = {"advertised.listeners": f"PLAINTEXT://{gate.address}", **config}
    listen = f"127.0.0.1:{find_port()}"
    gate.lead_to(listen)
    with penstock.Broker(listen=listen, config=settings) as broker:
        yield BrokerUnderTest(bootstrap_servers=gate.address, data=broker.data)


def find_port() -> int:
    """A free one that the system gives to nobody else."""
    while True:
        port = randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def check_still_open(worker: Worker, place: TopicPartition, committed: list[str]) -> None:
    """The last record there is nobody's yet."""
    assert worker.read(*place) == committed
    assert len(worker.read(*place, isolation="read_uncommitted")) > len(committed)


@pytest.mark.parametrize("client", ["java", "confluent-kafka"])
def test_a_late_end_does_not_end_the_next_transaction(
    start_worker: StartWorker, client: str
) -> None:
    with LateGate() as gate, behind_gate(gate) as broker:
        place = TopicPartition(new_topic(broker, partitions=1), 0)
        if client == "java":
            command, refusals = java_worker(VERSION, gate.address, print).command, FENCED
        else:
            command, refusals = python_worker(client, gate.address), LEFT_BEHIND
        worker = start_worker(command).open(new_name())
        for late, next_one in (("commit", "abort"), ("abort", "commit")):
            shown = worker.read(*place)
            worker.begin()
            worker.send(*place, f"ended late: {late}")
            gate.hold(ApiKey.END_TXN)
            worker.tell(late)
            held = gate.wait_held()
            gate.let_pass()
            worker.wait_answer()  # it asked again
            wait_decided(broker, [place])
            shown += [f"ended late: {late}"] if late == "commit" else []

            worker.begin()
            worker.send(*place, f"next: {next_one}")
            assert held.deliver().error_code in refusals
            check_still_open(worker, place, shown)
            worker.ask(next_one)
            wait_decided(broker, [place])
            shown += [f"next: {next_one}"] if next_one == "commit" else []
            assert worker.read(*place) == shown
        assert shown == ["ended late: commit", "next: commit"]


def test_a_late_commit_of_a_killed_producer_does_not_commit_its_heirs_transaction(
    start_worker: StartWorker,
) -> None:
    """Of librdkafka, which speaks the older transactions."""
    with LateGate() as gate, behind_gate(gate) as broker:
        place = TopicPartition(new_topic(broker, partitions=1), 0)
        command, name = python_worker("confluent-kafka", broker.bootstrap_servers), new_name()
        killed = start_worker(command).open(name)
        killed.begin()
        killed.send(*place, "of the killed")
        gate.hold(ApiKey.END_TXN)
        killed.tell("commit")
        held = gate.wait_held()
        killed.kill()
        gate.let_pass()

        heir = start_worker(command).open(name)
        heir.begin()
        heir.send(*place, "of the heir")
        assert held.deliver().error_code in FENCED
        check_still_open(heir, place, [])
        heir.abort()
        wait_decided(broker, [place])
        assert heir.read(*place) == []


def test_a_late_marker_does_not_end_the_next_transaction(
    start_worker: StartWorker, zookeeper_connect: str
) -> None:
    """Of two brokers: one coordinates, the other leads the partition, behind the gate."""
    with two_brokers(f"{zookeeper_connect}/{uuid4().hex}") as (broker, gates):
        worker = start_worker(java_worker(VERSION, broker.bootstrap_servers, print).command)
        name = new_name()
        worker.open(name)
        coordinator = ask(broker, lambda client: client.transactions.describe(name)).coordinator.id
        leader = next(gate for gate in gates if gate != coordinator)
        place = TopicPartition(create_on(broker, leader), 0)

        worker.begin()
        worker.send(*place, "marked late")
        gates[leader].hold(ApiKey.WRITE_TXN_MARKERS)
        worker.commit()
        held = gates[leader].wait_held()
        gates[leader].let_pass()
        wait_decided(broker, [place])

        worker.begin()
        worker.send(*place, "next")
        (marker,) = held.deliver().markers
        assert [partition.error_code in FENCED for partition in marker.topics[0].partitions] == [
            True
        ]
        check_still_open(worker, place, ["marked late"])
        worker.abort()
        wait_decided(broker, [place])
        assert worker.read(*place) == ["marked late"]


@contextmanager
def two_brokers(connect: str) -> Iterator[tuple[BrokerUnderTest, dict[int, LateGate]]]:
    with ExitStack() as stack:
        gates = {number: stack.enter_context(LateGate()) for number in (1, 2)}
        brokers = [
            stack.enter_context(
                behind_gate(
                    gate, **ONE_REPLICA, **{"zookeeper.connect": connect, "broker.id": number}
                )
            )
            for number, gate in gates.items()
        ]
        yield brokers[0], gates


def create_on(broker: BrokerUnderTest, leader: int) -> str:
    name = new_name()
    topic = NewTopicSpec(name=name, assignment={0: (BrokerId(leader),)})
    ask(broker, lambda client: client.admin.create_topics([topic]))
    return name
