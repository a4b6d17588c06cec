"""A broker with a stalled event loop: its session expires, and it is fenced when it resumes."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.cluster.records import create_on, make_batch, read, send, wait_stored

from penstock.client.connection import BrokerConnection
from penstock.client.data_calls import produce_call, read_produced
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

# Python runs this file in every process that it starts. While SIGUSR1 is handled on the loop's
# thread, nothing else runs there; the process and its other threads continue.
STALLING = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.signal(signal.SIGUSR1, lambda *_: signal.sigwait([signal.SIGUSR2]))
"""
STALL, WAKE = signal.SIGUSR1, signal.SIGUSR2
TIMEOUT_MS = 30_000


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "sitecustomize.py").write_text(STALLING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def zookeeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_stalled_leader_is_replaced_and_fenced(cluster: Cluster, zookeeper: KazooClient) -> None:
    create_on(cluster, "stalled", (1, 2, 3), {"min.insync.replicas": "2"})
    send(cluster, "stalled", "before")
    czxid = zookeeper.exists("/brokers/ids/1").czxid

    assert (
        asyncio.run(_produce_to_stalled_leader(cluster, zookeeper))
        is ErrorCode.NOT_LEADER_OR_FOLLOWER
    )

    cluster.wait_in_sync("stalled", 0, 3)
    assert zookeeper.exists("/brokers/ids/1").czxid > czxid
    assert read(cluster, "stalled") == ["before", "meanwhile"]
    wait_stored(cluster, 1, "stalled", ["before", "meanwhile"])


async def _produce_to_stalled_leader(cluster: Cluster, zookeeper: KazooClient) -> ErrorCode:
    """Produces like a client with outdated metadata: its request is the first that the old leader
    handles when it resumes."""
    metadata = cluster.ask(lambda client: client.metadata([]))
    connection = await BrokerConnection.open(metadata.brokers[BrokerId(1)].address)
    os.kill(cluster.pid(1), STALL)
    cluster.wait(lambda: zookeeper.exists("/brokers/ids/1"), lambda stat: stat is None)
    cluster.wait_partition("stalled", 0, lambda state: state.leader == 2)
    send(cluster, "stalled", "meanwhile")
    tp, batch = TopicPartition("stalled", 0), make_batch("to a leader that was")
    call = produce_call(tp, batch, acks=-1, timeout_ms=TIMEOUT_MS)
    answer = asyncio.ensure_future(connection.call(call, timeout_ms=TIMEOUT_MS))
    await asyncio.sleep(0)  # the call sends its request in its first step
    os.kill(cluster.pid(1), WAKE)
    code, _, _ = read_produced(await answer)
    await connection.close()
    return code
