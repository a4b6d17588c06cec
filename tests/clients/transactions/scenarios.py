"""Transaction scenarios that every client must pass, whatever its language.

A test module provides its client as the fixture `client` and derives a class from
`TransactionScenarios`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from tests.clients.groups.scenarios import committed, partitions_of, send
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.transactions.worker import Taken
from tests.clients.transactions.workers import TransactionHarness, Worker, WorkerRefused
from tests.clients.under_test import BrokerUnderTest
from tests.profile import scaled

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, IsolationLevel
from penstock.model.ids import TopicPartition

COPIES = scaled(test=100, verify=600, release=3000)
COPIED_PARTITIONS = 2
SHORT_MS = 1_000
PATIENCE_S = 180.0


def wait_decided(broker: BrokerUnderTest, partitions: Iterable[TopicPartition]) -> None:
    """Waits until no transaction is open in these partitions and the last stable offset is the end.

    EndTxn responds before every partition has its marker.
    """
    wanted = dict.fromkeys(partitions, LATEST)

    async def look(client: ClusterClient) -> bool:
        ends = await client.list_offsets(wanted)
        stable = await client.list_offsets(wanted, isolation=IsolationLevel.READ_COMMITTED)
        return all(stable[tp].offset == ends[tp].offset for tp in wanted)

    deadline = time.monotonic() + PATIENCE_S
    while not ask(broker, look):
        assert time.monotonic() < deadline, f"still open after {PATIENCE_S} s: {list(wanted)}"


class TransactionScenarios:
    def test_a_commit_becomes_visible_in_all_partitions_and_not_before(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        one, other = new_topic(transaction_broker), new_topic(transaction_broker)
        partitions = [TopicPartition(one, 0), TopicPartition(one, 2), TopicPartition(other, 1)]
        worker = harness.take().open(new_name())
        worker.begin()
        for tp in partitions:
            worker.send(*tp, "first", "second")
        for tp in partitions:
            assert worker.read(*tp) == []
            assert worker.read(*tp, isolation="read_uncommitted") == ["first", "second"]
        worker.commit()
        wait_decided(transaction_broker, partitions)
        for tp in partitions:
            assert worker.read(*tp) == ["first", "second"]

    def test_aborted_records_are_never_visible_and_later_ones_are(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        partitions = partitions_of(new_topic(transaction_broker, partitions=2), 2)
        worker = harness.take().open(new_name())
        for number, ends_well in enumerate([True, False, True, False, False, True]):
            worker.begin()
            for tp in partitions:
                worker.send(*tp, f"{number}")
            worker.commit() if ends_well else worker.abort()
        wait_decided(transaction_broker, partitions)
        for tp in partitions:
            assert worker.read(*tp) == ["0", "2", "5"]
            assert worker.read(*tp, isolation="read_uncommitted") == list("012345")

    def test_a_delay_counts_from_the_commit_and_an_abort_forgets(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        topic = new_topic(transaction_broker, partitions=1, penstock__delayed__messages="true")
        worker = harness.take().open(new_name())
        for value, ends_well in (("aborted", False), ("committed", True)):
            worker.begin()
            worker.send(topic, 0, f"{value} at once")
            worker.send(topic, 0, f"{value} later", f"{value} with it", delay_ms=SHORT_MS)
            ended_s = time.monotonic()
            worker.commit() if ends_well else worker.abort()
        wanted = ["committed at once", "committed later", "committed with it"]
        deadline = time.monotonic() + PATIENCE_S
        while len(read := worker.read(topic, 0)) < len(wanted):
            assert time.monotonic() < deadline, read
        assert time.monotonic() - ended_s >= SHORT_MS / 1000
        assert read == wanted

    def test_a_transaction_left_open_by_a_crash_is_aborted_when_its_id_is_reused(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        partitions = partitions_of(new_topic(transaction_broker, partitions=2), 2)
        name = new_name()
        crashed = harness.take().open(name)
        crashed.begin()
        for tp in partitions:
            crashed.send(*tp, "lost")
        harness.kill(crashed)

        resumed = harness.take().open(name)
        resumed.begin()
        resumed.send(*partitions[0], "kept")
        resumed.commit()
        wait_decided(transaction_broker, partitions)
        assert [resumed.read(*tp) for tp in partitions] == [["kept"], []]

    def test_a_zombie_is_fenced_and_does_not_affect_its_successor(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        tp = TopicPartition(new_topic(transaction_broker, partitions=1), 0)
        name = new_name()
        zombie = harness.take().open(name)
        zombie.begin()
        zombie.send(*tp, "of the zombie")
        heir = harness.take().open(name)
        heir.begin()
        heir.send(*tp, "of the heir")
        with pytest.raises(WorkerRefused) as refused:
            zombie.commit()
        assert refused.value.kind in harness.client.fenced
        heir.commit()
        wait_decided(transaction_broker, [tp])
        assert heir.read(*tp) == ["of the heir"]

    def test_a_timed_out_transaction_is_aborted(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        tp = TopicPartition(new_topic(transaction_broker, partitions=1), 0)
        slow = harness.take().open(new_name(), timeout_ms=SHORT_MS)
        slow.begin()
        slow.send(*tp, "too late")
        wait_decided(transaction_broker, [tp])
        with pytest.raises(WorkerRefused):
            slow.commit()
        assert slow.read(*tp) == []

    def test_copies_are_exact_although_the_copier_aborts_and_crashes(
        self, transaction_broker: BrokerUnderTest, harness: TransactionHarness
    ) -> None:
        source = new_topic(transaction_broker, partitions=COPIED_PARTITIONS)
        target = new_topic(transaction_broker, partitions=COPIED_PARTITIONS)
        sent = send(transaction_broker, source, COPIES, partitions=COPIED_PARTITIONS)
        name, group = new_name(), new_name()

        worker = start_copying(harness, name, group, source)
        copied = commit_copies(worker, target)
        copy(worker, target)
        worker.abort()
        worker.close()  # its position is beyond the aborted records: start again
        harness.clear(failed=False)
        worker = start_copying(harness, name, group, source)
        copied += commit_copies(worker, target)
        copy(worker, target)
        harness.kill(worker)

        worker = start_copying(harness, name, group, source)
        while len(copied) < COPIES:
            copied += commit_copies(worker, target)
        partitions = partitions_of(target, COPIED_PARTITIONS)
        wait_decided(transaction_broker, partitions)
        for number, tp in enumerate(partitions):
            assert worker.read(*tp) == [
                f"copy of {value}" for value in sent[number::COPIED_PARTITIONS]
            ]
        wait_decided(transaction_broker, offsets_partitions(transaction_broker))
        assert {
            tp.partition: at for tp, (at, _) in committed(transaction_broker, group).items()
        } == dict.fromkeys(range(COPIED_PARTITIONS), COPIES // COPIED_PARTITIONS)


def start_copying(harness: TransactionHarness, name: str, group: str, source: str) -> Worker:
    """Reopens the transactional id first, which ends an open transaction; then joins the group,
    whose offsets are stable by then."""
    worker = harness.take().open(name)
    worker.join(group, source)
    return worker


def commit_copies(worker: Worker, target: str) -> list[Taken]:
    taken = copy(worker, target)
    worker.commit()
    return taken


def copy(worker: Worker, target: str) -> list[Taken]:
    """Sends in a transaction that stays open."""
    taken = worker.take()
    worker.begin()
    for number in sorted({record.partition for record in taken}):
        values = [f"copy of {record.value}" for record in taken if record.partition == number]
        worker.send(target, number, *values)
    worker.send_offsets()
    return taken


def offsets_partitions(broker: BrokerUnderTest) -> list[TopicPartition]:
    async def look(client: ClusterClient) -> list[TopicPartition]:
        topic = "__consumer_offsets"
        metadata = await client.metadata([topic])
        return partitions_of(topic, len(metadata.topics[topic].partitions))

    return ask(broker, look)
