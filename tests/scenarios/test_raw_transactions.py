"""Transactions on a real broker, request by request: v1 and v2 clients, late batches, a kill."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.profile import is_long
from tests.scenarios.raw_client import RawClient
from tests.scenarios.raw_transactions import (
    CLIENTS,
    NONE,
    Client,
    committed_offset,
    read_committed,
    settled,
    stable_committed_offset,
)

import penstock
from penstock.model.errors import ErrorCode

pytestmark = pytest.mark.xdist_group("raw transactions")

_NUMBERS = itertools.count(1)


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    with penstock.Broker(data=tmp_path_factory.mktemp("raw")) as broker:
        yield broker


@pytest.fixture(name="raw")
def _raw(broker: penstock.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as raw:
        yield raw


@pytest.fixture(name="client", params=CLIENTS)
def _client(request: pytest.FixtureRequest, broker: penstock.Broker, raw: RawClient) -> Client:
    """A producer, and a topic with the name of its transactional id."""
    name = f"transactions-{next(_NUMBERS)}"
    broker.create_topic(name, partitions=2)
    client = Client(raw, name, CLIENTS[request.param])
    assert client.init() is NONE
    return client


@pytest.mark.parametrize("commit", [True, False])
def test_read_committed_sees_a_whole_transaction_or_nothing(client: Client, commit: bool) -> None:
    out, raw = client.name, client.raw
    for partition in (0, 1):
        assert client.add(out, partition) is NONE
        assert client.write(out, partition, b"first") is NONE
        assert client.write(out, partition, b"second") is NONE
    assert client.commit_offset(client.name, out, 7) is NONE
    assert read_committed(raw, out) == []
    assert committed_offset(raw, client.name, out) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end(commit=commit) is NONE
    for partition in (0, 1):
        settled(raw, out, partition)
        expected = [b"first", b"second"] if commit else []
        assert read_committed(raw, out, partition) == expected
    assert stable_committed_offset(raw, client.name, out) == (7 if commit else -1)


def test_a_batch_after_end_txn_is_rejected_and_blocks_no_reader(client: Client) -> None:
    """KAFKA-14402: it would open a hanging transaction."""
    out, raw = client.name, client.raw
    client.add(out, 0)
    client.write(out, 0, b"in time")
    epoch = client.epoch
    assert client.end(commit=True) is NONE
    end = settled(raw, out)
    code = client.send(out, 0, b"late", sequence=1, epoch=epoch)
    expected = {
        10: ErrorCode.INVALID_TXN_STATE,
        11: ErrorCode.TRANSACTION_ABORTABLE,
        12: ErrorCode.INVALID_PRODUCER_EPOCH,
    }
    assert code is expected[client.versions.produce]
    assert settled(raw, out) == end
    assert read_committed(raw, out) == [b"in time"]


@pytest.mark.parametrize("is_restarted", [False, True] if is_long() else [False])
def test_a_sequence_reused_after_an_abort_is_not_a_duplicate_of_the_aborted_batch(
    client: Client, broker: penstock.Broker, is_restarted: bool
) -> None:
    """As a client does that purges sent records: every acknowledged record must be in the log."""
    out = client.name
    client.add(out, 0)
    assert client.write(out, 0, b"aborted") is NONE
    assert client.end(commit=False) is NONE
    end = settled(client.raw, out)
    if is_restarted:  # a snapshot has only the producer's last batch
        broker.stop()
        broker.start()
    has_own_epoch = client.versions.add is None
    with RawClient(broker.bootstrap_servers) as raw:
        client.raw = raw
        client.add(out, 0)
        code = client.send(out, 0, b"again", sequence=0, epoch=client.epoch)
        assert code is (NONE if has_own_epoch else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert client.send(out, 0, b"next", sequence=1, epoch=client.epoch) is NONE
        assert client.end(commit=True) is NONE
        assert settled(raw, out) == end + (3 if has_own_epoch else 2)
        committed = [b"again", b"next"] if has_own_epoch else [b"next"]
        assert read_committed(raw, out) == committed


def test_a_delayed_copy_of_a_committed_batch_stays_out_of_the_next_transaction(
    client: Client,
) -> None:
    out, raw = client.name, client.raw
    client.add(out, 0)
    first_epoch = client.epoch
    for value in (b"first", b"second"):
        assert client.write(out, 0, value) is NONE
    assert client.end(commit=True) is NONE
    settled(raw, out)
    refusal = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if client.versions.add is None:
        refusal = ErrorCode.INVALID_PRODUCER_EPOCH
    client.add(out, 0)
    for written in range(7):  # beyond the duplicate window, which holds five batches
        for sequence, copied in enumerate((b"first", b"second")):
            code = client.send(out, 0, copied, sequence=sequence, epoch=first_epoch)
            assert code is refusal
        assert client.write(out, 0, b"%d" % written) is NONE
    copied_sequence = client.sequences[out, 0] - 1
    code = client.send(out, 0, b"6", sequence=copied_sequence, epoch=client.epoch)
    assert code is NONE, "a copy within the open transaction is a duplicate"
    assert client.end(commit=True) is NONE
    settled(raw, out)
    values = [b"first", b"second", *(b"%d" % written for written in range(7))]
    assert read_committed(raw, out) == values


def test_a_partition_that_was_not_added_is_rejected(client: Client) -> None:
    out, raw = client.name, client.raw
    client.add(out, 0)
    client.write(out, 0, b"added")
    code = client.write(out, 1, b"not added")
    expected = {10: ErrorCode.INVALID_TXN_STATE, 11: ErrorCode.TRANSACTION_ABORTABLE, 12: NONE}
    assert code is expected[client.versions.produce]
    assert client.end(commit=False) is NONE
    for partition in (0, 1):
        settled(raw, out, partition)
        assert read_committed(raw, out, partition) == []


def test_init_producer_id_fences_the_previous_instance_and_aborts_its_transaction(
    client: Client,
) -> None:
    out, raw = client.name, client.raw
    client.add(out, 0)
    client.write(out, 0, b"zombie's")
    newer = Client(raw, client.name, client.versions)
    assert newer.init() is NONE
    settled(raw, out)
    assert client.write(out, 0, b"again") is ErrorCode.INVALID_PRODUCER_EPOCH
    newer.add(out, 0)
    assert newer.write(out, 0, b"newer") is NONE
    assert newer.end(commit=True) is NONE
    settled(raw, out)
    assert read_committed(raw, out) == [b"newer"]


def test_a_zombie_of_the_group_cannot_commit_offsets(client: Client) -> None:
    """KIP-447: the zombie's producer epoch may still be valid."""
    if client.versions.commit_offsets < 3:
        pytest.skip("these clients do not say who they are")
    out = client.name
    client.add(out, 0)
    client.write(out, 0, b"v")
    code = client.commit_offset(client.name, out, 7, member_id="gone", generation_id=3)
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert client.end(commit=False) is NONE


@pytest.mark.parametrize("versions", CLIENTS)
def test_an_open_transaction_continues_after_a_kill_of_the_broker(
    tmp_path: Path, versions: str
) -> None:
    broker = penstock.Broker(data=tmp_path).start()
    try:
        broker.create_topic("t", partitions=1)
        with RawClient(broker.bootstrap_servers) as raw:
            client = Client(raw, "survivor", CLIENTS[versions])
            assert client.init() is NONE
            assert client.add("t", 0) is NONE
            assert client.write("t", 0, b"before") is NONE
            assert client.commit_offset("g", "t", 7) is NONE
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap_servers) as raw:
            client.raw = raw
            assert client.write("t", 0, b"after") is NONE
            assert read_committed(raw, "t") == []
            assert client.end(commit=True) is NONE
            assert settled(raw, "t") == 3
            assert read_committed(raw, "t") == [b"before", b"after"]
            assert stable_committed_offset(raw, "g", "t") == 7
    finally:
        broker.stop()
