"""Two-phase commit (KIP-939): a prepared transaction survives its client, every broker and its
timeout, and then gets the decision, however often it is repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.transactions.worker_confluent_kafka import Worker
from tests.scenarios.prepare_transactions import PARTITIONS, TIMEOUT_MS

from penstock.client.errors import RefusedByBroker
from penstock.client.transaction_values import PreparedState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

REPOSITORY = Path(__file__).parents[2]
BROKERS = (1, 2, 3)
TOPIC, ORDINARY = "prepared", "ordinary"
NAMES = ("committed", "aborted", "kept")
SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield cluster


def test_a_prepared_transaction_survives_client_brokers_and_timeout_until_decided(
    cluster: Cluster,
) -> None:
    states = prepare_and_die(cluster)
    prepared_at = time.monotonic()
    for broker in BROKERS:
        cluster.kill(broker)
    for broker in BROKERS:
        cluster.start(broker)

    # An ordinary transaction of the same age is aborted: the coordinator has checked timeouts.
    cluster.wait(lambda: state_of(cluster, ORDINARY), lambda state: state == "CompleteAbort")
    assert time.monotonic() - prepared_at > TIMEOUT_MS / 1000
    assert {state_of(cluster, name) for name in NAMES} == {"Ongoing"}
    assert read(cluster) == [[]] * PARTITIONS
    assert read(cluster, "read_uncommitted") == [[*NAMES, ORDINARY]] * PARTITIONS

    for _ in range(2):
        cluster.ask(lambda client: client.transactions.end(states["committed"], commit=True))
        cluster.ask(lambda client: client.transactions.end(states["aborted"], commit=False))
    wait_shown(cluster, ["committed"])  # the third transaction holds back the last stable offset

    heir = take_over(cluster, states["kept"])
    for _ in range(2):
        cluster.ask(lambda client: client.transactions.end(heir, commit=True))
    wait_shown(cluster, ["committed", "kept"])
    everywhere = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    assert cluster.ask(lambda client: client.transactions.list_open(everywhere)) == []


def prepare_and_die(cluster: Cluster) -> dict[str, PreparedState]:
    """Prepares the transactions in a process that is killed afterwards."""
    command = [
        sys.executable,
        "-m",
        "tests.scenarios.prepare_transactions",
        cluster.bootstrap_servers,
    ]
    with subprocess.Popen(
        [*command, TOPIC, ORDINARY, *NAMES], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()  # returns at the latest when the process ends
        process.kill()
    return {name: PreparedState(*state) for name, state in json.loads(line).items()}


def take_over(cluster: Cluster, state: PreparedState) -> PreparedState:
    """Returns as the next instance of the producer: the transaction stays prepared, the old
    instance is fenced."""
    successor = cluster.ask(
        lambda client: client.transactions.init_producer(
            state.transactional_id, two_phase=True, keep_prepared=True
        )
    )
    assert successor.prepared == state
    with pytest.raises(RefusedByBroker) as refused:
        cluster.ask(lambda client: client.transactions.end(state, commit=False))
    assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return PreparedState(*successor.producer)


def state_of(cluster: Cluster, name: str) -> str:
    return cluster.ask(lambda client: client.transactions.describe(name)).state


def read(cluster: Cluster, isolation: str = "read_committed") -> list[list[str]]:
    """The values of each partition, read with librdkafka."""
    reader = Worker(cluster.bootstrap_servers)
    return [reader.read(TOPIC, number, isolation) for number in range(PARTITIONS)]


def wait_shown(cluster: Cluster, values: list[str]) -> None:
    """Waits for every partition, because EndTxn responds before the markers are written."""
    cluster.wait(lambda: read(cluster), lambda shown: shown == [values] * PARTITIONS)
