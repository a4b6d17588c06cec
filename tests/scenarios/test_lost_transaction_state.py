"""A coordinator that lost its newest state, by an unclean election or a restored folder.

It sends markers for transactions that ended long ago: nothing hangs forever, nothing ends wrongly.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.raw_client import RawClient
from tests.scenarios.raw_transactions import CLIENTS, NONE, Client, read_committed, settled
from tests.scenarios.test_transactions import commands_to
from tests.scenarios.transaction_state import ONE_SHARD, write_state

import penstock
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.transaction_version import BUMPING
from penstock.model.ids import TopicPartition

pytestmark = pytest.mark.xdist_group("raw transactions")

TP = TopicPartition("t", 0)
VERSIONS = CLIENTS["Java, transactions v2"]
SOON_S = 180.0


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(data=tmp_path, config=ONE_SHARD) as broker:
        broker.create_topic(TP.topic, partitions=1)
        yield broker


def test_a_marker_for_a_transaction_that_has_ended_completes(broker: penstock.Broker) -> None:
    with RawClient(broker.bootstrap_servers) as raw:
        client = commit_three(raw)
        settled(raw, *TP)
    forget_the_last(broker, client)
    with RawClient(broker.bootstrap_servers) as raw:
        check_continues(raw, client)


@pytest.mark.parametrize("known_epoch", [2, 3])
def test_a_marker_that_would_end_a_later_transaction_waits_for_an_operator(
    broker: penstock.Broker, known_epoch: int
) -> None:
    """The later transaction has a later epoch than the marker, or the same one, because EndTxn
    returned it."""
    with RawClient(broker.bootstrap_servers) as raw:
        client = commit_three(raw)
        settled(raw, *TP)
        assert client.write(*TP, b"of nobody any more") is NONE
    forget_the_last(broker, client, known_epoch)
    wait_logged(broker, "penstock transaction find-hanging")
    command = commands_to(broker)
    assert command("describe", client.name)["state"] == "PrepareCommit"
    (hanging,) = command("find-hanging", "--older-than", "0s")
    assert (hanging["producer_id"], hanging["producer_epoch"]) == (client.producer, 3)
    start = str(hanging["start_offset"])
    command("abort", "--topic", TP.topic, "--partition", "0", "--start-offset", start)
    assert command("find-hanging", "--older-than", "0s") == []
    broker.kill()  # a restarted coordinator sends markers at once
    broker.start()
    with RawClient(broker.bootstrap_servers) as raw:
        check_continues(raw, client)


def commit_three(raw: RawClient) -> Client:
    client = Client(raw, "lost", VERSIONS)
    assert client.init() is NONE
    for number in range(3):
        assert client.write(*TP, b"%d" % number) is NONE
        assert client.end(commit=True) is NONE
    assert client.epoch == 3
    return client


def forget_the_last(broker: penstock.Broker, client: Client, known_epoch: int = 2) -> None:
    """Restores the coordinator's state at the decision whose EndTxn returned this epoch: that of
    the second or third transaction."""
    broker.stop()
    now_ms = int(time.time() * 1000)
    decided = Transaction(
        producer_id=client.producer,
        producer_epoch=known_epoch,
        last_producer_epoch=known_epoch - 1,
        timeout_ms=60_000,
        state=State.PREPARE_COMMIT,
        partitions=frozenset({TP}),
        updated_ms=now_ms,
        started_ms=now_ms,
        client_version=BUMPING,
    )
    assert broker.data is not None
    write_state(Path(broker.data), client.name, decided)
    broker.start()


def wait_logged(broker: penstock.Broker, words: str) -> None:
    ends_s = time.monotonic() + SOON_S
    while words not in broker.logs():
        assert time.monotonic() < ends_s, broker.logs()
        time.sleep(0.05)


def check_continues(raw: RawClient, client: Client) -> None:
    """Checks that the transactional id is usable and that all committed records are there."""
    lost = client.producer
    client.raw = raw
    assert client.init() is NONE
    assert client.producer != lost  # otherwise its first batch would count as a duplicate
    assert client.write(*TP, b"3") is NONE
    assert client.end(commit=True) is NONE
    settled(raw, *TP)
    assert read_committed(raw, *TP) == [b"0", b"1", b"2", b"3"]
