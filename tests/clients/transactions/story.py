"""What every transactional client must be able to rely on, whatever language it is written in.

A test module gives its client as the fixture `client` and derives a class from `TransactionStory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from tests.clients.groups.story import committed, partitions_of, send
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.transactions.worker import Taken
from tests.clients.transactions.workers import Worker, WorkerRefused, Workshop
from tests.clients.under_test import BrokerUnderTest
from tests.profile import scaled

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, IsolationLevel
from penstock.model.ids import TopicPartition

COPIES = scaled(test=100, verify=600, release=3000)
COPIED_PARTITIONS = 2
SHORT_MS = 1_000
PATIENCE_S = 60.0


def wait_decided(broker: BrokerUnderTest, places: Iterable[TopicPartition]) -> None:
    """Until nothing is open in these partitions: the last stable offset is at the end. Commits are
    answered before every partition has heard of them."""
    wanted = dict.fromkeys(places, LATEST)

    async def look(client: ClusterClient) -> bool:
        ends = await client.list_offsets(wanted)
        stable = await client.list_offsets(wanted, isolation=IsolationLevel.READ_COMMITTED)
        return all(stable[tp].offset == ends[tp].offset for tp in wanted)

    deadline = time.monotonic() + PATIENCE_S
    while not ask(broker, look):
        assert time.monotonic() < deadline, f"still open after {PATIENCE_S} s: {list(wanted)}"


class TransactionStory:
    def test_a_commit_shows_everywhere_and_nothing_of_it_before(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        one, other = new_topic(transaction_broker), new_topic(transaction_broker)
        places = [TopicPartition(one, 0), TopicPartition(one, 2), TopicPartition(other, 1)]
        worker = shop.take().open(new_name())
        worker.begin()
        for place in places:
            worker.send(*place, "first", "second")
        for place in places:
            assert worker.read(*place) == []
            assert worker.read(*place, isolation="read_uncommitted") == ["first", "second"]
        worker.commit()
        wait_decided(transaction_broker, places)
        for place in places:
            assert worker.read(*place) == ["first", "second"]

    def test_what_is_aborted_never_shows_and_what_follows_does(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        places = partitions_of(new_topic(transaction_broker, partitions=2), 2)
        worker = shop.take().open(new_name())
        for number, ends_well in enumerate([True, False, True, False, False, True]):
            worker.begin()
            for place in places:
                worker.send(*place, f"{number}")
            worker.commit() if ends_well else worker.abort()
        wait_decided(transaction_broker, places)
        for place in places:
            assert worker.read(*place) == ["0", "2", "5"]
            assert worker.read(*place, isolation="read_uncommitted") == list("012345")

    def test_what_a_crash_left_open_is_gone_when_its_id_comes_back(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        places = partitions_of(new_topic(transaction_broker, partitions=2), 2)
        name = new_name()
        crashed = shop.take().open(name)
        crashed.begin()
        for place in places:
            crashed.send(*place, "lost")
        shop.kill(crashed)

        resumed = shop.take().open(name)
        resumed.begin()
        resumed.send(*places[0], "kept")
        resumed.commit()
        wait_decided(transaction_broker, places)
        assert [resumed.read(*place) for place in places] == [["kept"], []]

    def test_a_zombie_is_fenced_and_takes_nothing_from_its_heir(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        place = TopicPartition(new_topic(transaction_broker, partitions=1), 0)
        name = new_name()
        zombie = shop.take().open(name)
        zombie.begin()
        zombie.send(*place, "of the zombie")
        heir = shop.take().open(name)
        heir.begin()
        heir.send(*place, "of the heir")
        with pytest.raises(WorkerRefused) as refused:
            zombie.commit()
        assert refused.value.kind in shop.client.fenced
        heir.commit()
        wait_decided(transaction_broker, [place])
        assert heir.read(*place) == ["of the heir"]

    def test_a_transaction_that_takes_too_long_is_aborted(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        place = TopicPartition(new_topic(transaction_broker, partitions=1), 0)
        slow = shop.take().open(new_name(), timeout_ms=SHORT_MS)
        slow.begin()
        slow.send(*place, "too late")
        wait_decided(transaction_broker, [place])
        with pytest.raises(WorkerRefused):
            slow.commit()
        assert slow.read(*place) == []

    def test_copies_are_exact_though_their_maker_aborts_and_crashes(
        self, transaction_broker: BrokerUnderTest, shop: Workshop
    ) -> None:
        source = new_topic(transaction_broker, partitions=COPIED_PARTITIONS)
        target = new_topic(transaction_broker, partitions=COPIED_PARTITIONS)
        sent = send(transaction_broker, source, COPIES, partitions=COPIED_PARTITIONS)
        name, group = new_name(), new_name()

        worker = start_copying(shop, name, group, source)
        copied = commit_copies(worker, target)
        copy(worker, target)
        worker.abort()
        worker.close()  # where it reads is behind what was aborted: it begins anew
        shop.clear(failed=False)
        worker = start_copying(shop, name, group, source)
        copied += commit_copies(worker, target)
        copy(worker, target)
        shop.kill(worker)

        worker = start_copying(shop, name, group, source)
        while len(copied) < COPIES:
            copied += commit_copies(worker, target)
        places = partitions_of(target, COPIED_PARTITIONS)
        wait_decided(transaction_broker, places)
        for number, place in enumerate(places):
            assert worker.read(*place) == [
                f"copy of {value}" for value in sent[number::COPIED_PARTITIONS]
            ]
        wait_decided(transaction_broker, offsets_partitions(transaction_broker))
        assert {
            each.partition: at for each, (at, _) in committed(transaction_broker, group).items()
        } == dict.fromkeys(range(COPIED_PARTITIONS), COPIES // COPIED_PARTITIONS)


def start_copying(shop: Workshop, name: str, group: str, source: str) -> Worker:
    """First the id, which ends what was left open; then the group, whose offsets are known then."""
    worker = shop.take().open(name)
    worker.join(group, source)
    return worker


def commit_copies(worker: Worker, target: str) -> list[Taken]:
    taken = copy(worker, target)
    worker.commit()
    return taken


def copy(worker: Worker, target: str) -> list[Taken]:
    """In a transaction, which is left open."""
    taken = worker.take()
    worker.begin()
    for number in sorted({each.partition for each in taken}):
        values = [f"copy of {each.value}" for each in taken if each.partition == number]
        worker.send(target, number, *values)
    worker.send_offsets()
    return taken


def offsets_partitions(broker: BrokerUnderTest) -> list[TopicPartition]:
    async def look(client: ClusterClient) -> list[TopicPartition]:
        topic = "__consumer_offsets"
        metadata = await client.metadata([topic])
        return partitions_of(topic, len(metadata.topics[topic].partitions))

    return ask(broker, look)
