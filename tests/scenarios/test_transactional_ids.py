"""Transactional ids on a real broker: exhausted epochs, expiry, consumers that wait across a crash,
and producers of transactions v1 beside v2.
"""

import itertools
import select
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.profile import scaled
from tests.scenarios.raw_client import RawClient
from tests.scenarios.raw_transactions import (
    CLIENTS,
    NONE,
    Client,
    CommittedReader,
    begin_fetch,
    read_committed,
    retried,
    settled,
)
from tests.scenarios.transaction_state import ONE_SHARD, write_state

import penstock
from penstock.coordinators.transaction.records import State, Transaction
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers

pytestmark = pytest.mark.xdist_group("raw transactions")

OLD, NEW = CLIENTS["librdkafka"], CLIENTS["Java, transactions v2"]
SETTINGS = {**ONE_SHARD, "group.initial.rebalance.delay.ms": 0}
OLD_ID = 4_000_000  # a producer id above those that the broker assigns
LAST_EPOCH = 2**15 - 2
TRANSACTIONS = scaled(test=60, verify=1000, release=10_000)
LONG_S, SOON_S = 400.0, 180.0
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)

_NUMBERS = itertools.count(1)


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    """A broker with one producer of each transaction version whose epochs are nearly exhausted."""
    data = tmp_path_factory.mktemp("lives")
    with penstock.Broker(data=data, config=SETTINGS) as broker:
        with RawClient(broker.bootstrap_servers) as raw:
            assert Client(raw, "first", NEW).init() is NONE
        broker.stop()
        make_old(data, "old librdkafka", OLD_ID)
        make_old(data, "old java", OLD_ID + 1)
        broker.start()
        yield broker


def make_old(data: Path, name: str, producer_id: int) -> None:
    """Writes the state of a producer after thirty thousand transactions."""
    lived = Transaction(
        producer_id=producer_id,
        producer_epoch=LAST_EPOCH - 2,
        timeout_ms=60_000,
        state=State.COMPLETE_COMMIT,
        updated_ms=int(time.time() * 1000),
    )
    write_state(data, name, lived)


@pytest.fixture(name="raw")
def _raw(broker: penstock.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as raw:
        yield raw


@pytest.fixture(name="topic")
def _topic(broker: penstock.Broker) -> str:
    name = f"lives-{next(_NUMBERS)}"
    broker.create_topic(name, partitions=1)
    return name


def write_and_end(client: Client, topic: str, value: bytes, *, commit: bool = True) -> None:
    assert client.add(topic, 0) is NONE
    assert client.write(topic, 0, value) is NONE
    assert client.end(commit=commit) is NONE


# -- the last epochs (KAFKA-18660, KAFKA-19367) ----------------------------------------------


def test_a_producer_with_exhausted_epochs_gets_another_producer_id(
    raw: RawClient, topic: str
) -> None:
    client = Client(raw, "old java", NEW)
    assert client.init() is NONE
    lived = [(client.producer, client.epoch)]
    for value in (b"a", b"b"):
        write_and_end(client, topic, value)
        lived.append((client.producer, client.epoch))
    settled(raw, topic)
    client.producer, client.epoch = lived[1]
    assert client.end(commit=True) is NONE  # again: the response was lost
    assert (client.producer, client.epoch) == lived[2]
    write_and_end(client, topic, b"c")
    lived.append((client.producer, client.epoch))
    assert lived[:2] == [(OLD_ID + 1, LAST_EPOCH - 1), (OLD_ID + 1, LAST_EPOCH)]
    assert [epoch for _, epoch in lived[2:]] == [0, 1]
    assert lived[2][0] == lived[3][0] < OLD_ID
    settled(raw, topic)

    zombie = Client(raw, client.name, NEW)
    zombie.producer, zombie.epoch = lived[1]
    assert zombie.write(topic, 0, b"zombie's") in FENCED
    assert zombie.end(commit=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert read_committed(raw, topic) == [b"a", b"b", b"c"]


def test_a_successor_in_the_last_epoch_gets_another_producer_id_and_aborts(
    raw: RawClient, topic: str
) -> None:
    clients = [Client(raw, "old librdkafka", OLD) for _ in range(3)]
    for client in clients[:2]:
        assert client.init() is NONE
    assert (clients[1].producer, clients[1].epoch) == (OLD_ID, LAST_EPOCH)
    clients[1].add(topic, 0)
    assert clients[1].write(topic, 0, b"left open") is NONE
    assert clients[2].init() is NONE  # the last epoch is only for fencing
    assert clients[2].producer != OLD_ID
    assert clients[2].epoch == 0
    assert clients[1].write(topic, 0, b"again") in FENCED
    assert clients[1].end(commit=True) in (*FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    write_and_end(clients[2], topic, b"of the heir")
    settled(raw, topic)
    assert read_committed(raw, topic) == [b"of the heir"]


# -- transactions v1 beside v2 ---------------------------------------------------------------


def test_v1_and_v2_producers_write_to_one_partition_in_turns(raw: RawClient, topic: str) -> None:
    old, new = Client(raw, f"{topic}-old", OLD), Client(raw, f"{topic}-new", NEW)
    for client in (old, new):
        assert client.init() is NONE
        assert client.add(topic, 0) is NONE
    for number in range(3):
        assert old.write(topic, 0, b"old %d" % number) is NONE
        assert new.write(topic, 0, b"new %d" % number) is NONE
    assert new.end(commit=True) is NONE
    assert read_committed(raw, topic) == []  # the open transaction of the v1 producer began earlier
    assert old.end(commit=False) is NONE
    settled(raw, topic)
    write_and_end(old, topic, b"old 3")
    settled(raw, topic)
    assert read_committed(raw, topic) == [b"new 0", b"new 1", b"new 2", b"old 3"]


# -- consumers that wait ------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_completes_waiting_fetches_even_after_a_crash(
    tmp_path: Path, commit: bool
) -> None:
    """An abort completes the fetch, too, and lists the aborted transactions (KAFKA-5376)."""
    broker = penstock.Broker(data=tmp_path).start()
    try:
        broker.create_topic("t", partitions=1)
        with RawClient(broker.bootstrap_servers) as raw:
            client = Client(raw, "slow", NEW)
            assert client.init() is NONE
            assert client.write("t", 0, b"before") is NONE
        broker.kill()
        broker.start()
        with (
            RawClient(broker.bootstrap_servers) as raw,
            RawClient(broker.bootstrap_servers) as reader,
        ):
            client.raw = raw
            read_response = begin_fetch(reader, "t", 0, 0, wait_s=LONG_S)
            assert client.write("t", 0, b"after") is NONE
            assert not select.select([reader.socket], [], [], 0.3)[0]  # the fetch still waits
            begun = time.monotonic()
            assert client.end(commit=commit) is NONE
            fetched = read_response()
            assert time.monotonic() - begun < SOON_S
            assert fetched.last_stable_offset == 3
            assert next(iter_headers(bytes(fetched.records)))[1].base_offset == 0
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in fetched.aborted_transactions
            ]
            assert aborted == ([] if commit else [(client.producer, 0)])
            assert read_committed(raw, "t") == ([b"before", b"after"] if commit else [])
    finally:
        broker.stop()


def test_no_fetch_returns_records_beyond_its_last_stable_offset(
    broker: penstock.Broker, raw: RawClient, topic: str
) -> None:
    """Reading the last stable offset twice exposed open transactions (KAFKA-9807, KAFKA-9835)."""
    written = [b"%d of %d" % (index, number) for number in range(TRANSACTIONS) for index in (0, 1)]

    def write() -> None:
        with RawClient(broker.bootstrap_servers) as own:
            client = Client(own, topic, NEW)
            assert client.init() is NONE
            for number in range(TRANSACTIONS):
                for value in written[2 * number : 2 * number + 2]:
                    assert client.write(topic, 0, value) is NONE
                assert client.end(commit=number % 3 > 0) is NONE

    reader, looks = CommittedReader(), 0
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not writing.done() or reader.offset < settled(raw, topic):
            fetched = begin_fetch(raw, topic, 0, reader.offset, wait_s=0.02)()
            ends = [header.next_offset for _, header in iter_headers(bytes(fetched.records or b""))]
            assert max(ends, default=0) <= fetched.last_stable_offset <= fetched.high_watermark
            reader.take(fetched)
            looks += len(ends) > 0
        writing.result()
    assert reader.values == [value for index, value in enumerate(written) if index // 2 % 3 > 0]
    assert looks > TRANSACTIONS // 10


# -- expiry ---------------------------------------------------------------------------------------


def test_an_unused_transactional_id_expires_unless_its_transaction_is_open() -> None:
    forgetful = {
        "transactional.id.expiration.ms": 300,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 50,
    }
    with penstock.Broker(config=forgetful) as broker, RawClient(broker.bootstrap_servers) as raw:
        broker.create_topic("t", partitions=1)
        lives = {name: Client(raw, name, NEW) for name in ("empty", "ended", "open")}
        for restart in lives.values():
            assert restart.init() is NONE
        write_and_end(lives["ended"], "t", b"ended")
        assert lives["open"].write("t", 0, b"open") is NONE
        wait_listed(raw, ["open"])
        assert lives["ended"].end(commit=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert lives["open"].end(commit=True) is NONE
        before = lives["ended"].producer
        assert lives["ended"].init() is NONE
        assert lives["ended"].producer > before
        write_and_end(lives["ended"], "t", b"anew")
        settled(raw, "t")
        assert read_committed(raw, "t") == [b"ended", b"open", b"anew"]


def wait_listed(raw: RawClient, names: list[str]) -> None:
    ends_s = time.monotonic() + SOON_S
    while (listed := list_names(raw)) != names:
        assert time.monotonic() < ends_s, listed
        time.sleep(0.05)


def list_names(raw: RawClient, pattern: str | None = None) -> list[str]:
    response = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)
    assert response.error_code == NONE
    return sorted(state.transactional_id for state in response.transaction_states)


def test_transactional_ids_are_listed_by_a_pattern(raw: RawClient) -> None:
    names = ["paid {eu}", "paid-é", "unpaid"]
    for name in names:
        assert Client(raw, name, NEW).init() is NONE
    assert list_names(raw, "paid.*") == names[:2]
    assert list_names(raw, r"(un)?paid(-\S)?") == names[1:]
    assert list_names(raw, "paid") == []
    refused = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="paid(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


# -- zombies of a group ------------------------------------------------------------------------


def test_offsets_of_an_old_generation_are_not_committed(raw: RawClient, topic: str) -> None:
    """KIP-447: the zombie's producer epoch may still be valid."""
    client = Client(raw, topic, CLIENTS["Java, transactions v1"])
    assert client.init() is NONE
    member, before = join(raw, topic, "", b"first")
    member, now = join(raw, topic, member, b"second")
    assert now > before
    client.add(topic, 0)

    def commit(generation: int, who: str) -> ErrorCode:
        return client.commit_offset(topic, topic, 7, member_id=who, generation_id=generation)

    assert commit(before, member) is ErrorCode.ILLEGAL_GENERATION
    assert commit(now, "somebody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(now, member) is NONE
    assert client.end(commit=True) is NONE


def join(raw: RawClient, group: str, member: str, metadata: bytes) -> tuple[str, int]:
    """Joins as the only member, with a new subscription, so that there is a new generation."""

    def ask(name: str) -> Any:
        return retried(
            lambda: raw.ask(
                ApiKey.JOIN_GROUP,
                5,
                group_id=group,
                session_timeout=timedelta(seconds=30),
                rebalance_timeout=timedelta(seconds=30),
                member_id=name,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": metadata}],
            )
        )

    raw.ask(ApiKey.FIND_COORDINATOR, 1, key=group, key_type=0)
    response = ask(member)
    if get_error(response.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
        response = ask(response.member_id)
    assert get_error(response.error_code) is NONE
    synced = raw.ask(
        ApiKey.SYNC_GROUP,
        3,
        group_id=group,
        generation_id=response.generation_id,
        member_id=response.member_id,
        assignments=[{"member_id": response.member_id, "assignment": b""}],
    )
    assert get_error(synced.error_code) is NONE
    return response.member_id, response.generation_id
