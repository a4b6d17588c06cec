"""Partitions between a producer, a slow network and a coordinator that repeats its markers.

In whatever order messages arrive, no transaction stays open that its coordinator has ended, no
batch ends up in another transaction, and every batch that was acknowledged is in the log. The
coordinator epoch of a marker identifies what it ends here.
"""

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.profile import scaled
from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import ApiHarness, FakeConnection, Sent, batch

from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import read_header
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import iter_records
from penstock.replication.transaction_verification import Verifications

PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
PRODUCER = FIRST_DELIVERER_ID - 1
FIRST_EPOCHS = (0, 32000)
NONE = ErrorCode.NONE


class Batch(NamedTuple):
    """A produce request in flight."""

    transaction: int
    epoch: int
    partition: TopicPartition
    sequence: int


class Coordinator:
    """The coordinator of one producer. With transactions v2 every transaction has its own epoch."""

    def __init__(self, epoch: int, version: int) -> None:
        self.epoch = epoch
        self.version = version
        self.transaction = 0
        self.is_open = True
        self.parts: set[TopicPartition] = set()
        self.unmarked: set[TopicPartition] = set()
        self.decisions: dict[int, bool] = {}

    def reply(self, epoch: int, partition: TopicPartition) -> ErrorCode:
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not self.is_open:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.version == 2:
            self.parts.add(partition)
        return NONE if partition in self.parts else ErrorCode.TRANSACTION_ABORTABLE

    def end(self, *, commit: bool) -> None:
        """The next transaction begins when all partitions have the marker."""
        assert self.is_open
        self.decisions[self.transaction] = commit
        self.is_open = False
        self.unmarked = set(self.parts)
        self.epoch += self.version == 2

    def go_on(self) -> None:
        assert not self.is_open
        assert not self.unmarked
        self.transaction += 1
        self.parts.clear()
        self.is_open = True


class World:
    def __init__(self, folder: Path, chance: random.Random, version: int) -> None:
        self.chance = chance
        self.version = version  # transaction version
        self.harness = ApiHarness(folder)
        self.harness.make_topic("orders", len(PARTITIONS))
        let_brokers_in(self.harness)
        self.harness.verifier.answers_at_once = False
        self.coordinator = Coordinator(chance.choice(FIRST_EPOCHS), version)
        self.sequences: Counter[TopicPartition] = Counter()
        self.on_the_way: list[Batch] = []  # produce requests, delivered in any order, or again
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []  # sent, perhaps repeatedly
        self.answers: list[Callable[[], None]] = []  # responses of the coordinator, in flight
        self.verified_transactions: list[int] = []  # the transaction of each verification
        self.next_verification = 0  # the first one not yet at the coordinator
        self.seen: Counter[str] = Counter()
        self.sent: list[tuple[Batch, Sent]] = []

    # -- what can happen -------------------------------------------------------------------

    def send(self) -> None:
        """With transactions v2 the next transaction may begin before the last one has ended
        everywhere."""
        coordinator = self.coordinator
        if not coordinator.is_open and self.version == 1:
            return
        partition = self.chance.choice(PARTITIONS)
        number = coordinator.transaction + (not coordinator.is_open)
        self.on_the_way.append(
            Batch(number, coordinator.epoch, partition, self.sequences[partition])
        )
        self.sequences[partition] += 1
        if self.version == 1:
            coordinator.parts.add(partition)

    def deliver_batch(self) -> None:
        if not self.on_the_way:
            return
        made = self.chance.choice(self.on_the_way)
        if self.chance.random() < 0.8:  # otherwise it is delivered again later
            self.on_the_way.remove(made)
        if self.is_past_telling(made.transaction, made.partition):
            return
        records = batch(
            made.transaction.to_bytes(4, "big"),
            producer_id=PRODUCER,
            producer_epoch=made.epoch,
            base_sequence=made.sequence,
            transactional=True,
        )
        topic = {
            "name": made.partition.topic,
            "partition_data": [{"index": made.partition.partition, "records": records}],
        }
        sent = self.harness.send(
            ApiKey.PRODUCE,
            10 + self.version,
            acks=-1,
            timeout=timedelta(seconds=1),
            transactional_id="mine",
            topic_data=[topic],
            connection=FakeConnection(),
        )
        self.sent.append((made, sent))
        if len(self.harness.verifier.requests) > len(self.verified_transactions):
            self.verified_transactions.append(made.transaction)

    def answer_question(self) -> None:
        """The coordinator decides now; its response is in flight until `deliver_answer`."""
        verifications = self.harness.verifier.requests
        if self.next_verification < len(verifications):
            verification, transaction = (
                verifications[self.next_verification],
                self.verified_transactions[self.next_verification],
            )
            self.next_verification += 1
            (partition,) = verification.partitions
            code = self.coordinator.reply(verification.producer_epoch, partition)
            if self.is_past_telling(transaction, partition):
                code = ErrorCode.NETWORK_EXCEPTION
            self.seen[code.name] += 1
            self.answers.append(lambda: verification.done({partition: code}))

    def deliver_answer(self) -> None:
        if self.answers:
            self.answers.pop(self.chance.randrange(len(self.answers)))()

    def end(self) -> None:
        if self.coordinator.is_open:
            self.coordinator.end(commit=self.chance.random() < 0.5)
            self.sequences.clear()
            self.send_markers()
        elif not self.coordinator.unmarked:
            self.coordinator.go_on()
            if self.version == 1:
                self.sequences.update(
                    {partition: self._next_sequence(partition) for partition in PARTITIONS}
                )

    def _next_sequence(self, name: TopicPartition) -> int:
        """A client continues after the last acknowledged batch, or one earlier if it purged
        that."""
        producer_state = self.harness.replicas.get(name).log.producers.find(PRODUCER)
        if producer_state is None:
            return 0
        has_purged = self.chance.random() < 0.3
        return max(0, producer_state.last_sequence + 1 - has_purged)

    def is_past_telling(self, transaction: int, partition: TopicPartition) -> bool:
        """With transactions v1, a late batch looks like a part of the producer's next transaction,
        which is why v2 exists."""
        coordinator = self.coordinator
        is_late = transaction < coordinator.transaction
        return self.version == 1 and is_late and partition in coordinator.parts

    def send_markers(self) -> None:
        """Delivers markers, perhaps again, because the coordinator may not know that they were
        written."""
        if not self.coordinator.is_open:
            number = self.coordinator.transaction
            commit = self.coordinator.decisions[number]
            for part in self.coordinator.parts:
                self.markers.append((part, self.coordinator.epoch, number, commit))

    def deliver_marker(self) -> None:
        if not self.markers:
            return
        marker = self.chance.choice(self.markers)
        if self.chance.random() < 0.7:
            self.markers.remove(marker)
        partition, epoch, number, commit = marker
        if self.is_past_telling(number, partition):
            return
        topic = {"name": partition.topic, "partition_indexes": [partition.partition]}
        wanted = {
            "producer_id": PRODUCER,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "coordinator_epoch": number,
            "transaction_version": self.version,
            "topics": [topic],
        }
        reply = self.harness.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[wanted])
        code = get_error(reply.markers[0].topics[0].partitions[0].error_code)
        is_current = number == self.coordinator.transaction and not self.coordinator.is_open
        if is_current:
            assert code is NONE
            self.coordinator.unmarked.discard(partition)
        self.seen[f"marker {'in time' if is_current else 'late'} {code.name}"] += 1

    # -- what must hold --------------------------------------------------------------------

    def settle(self) -> None:
        """Delivers everything, and ends the last transaction."""
        if self.coordinator.is_open:
            self.end()
        while self.on_the_way or self.markers or self.answers or self.is_asking:
            self.deliver_batch()
            self.answer_question()
            self.deliver_answer()
            self.deliver_marker()
        assert not self.coordinator.unmarked
        assert all(sent.is_answered for _, sent in self.sent)

    @property
    def is_asking(self) -> bool:
        return self.next_verification < len(self.harness.verifier.requests)

    def check(self) -> None:
        for name in PARTITIONS:
            partition = self.harness.replicas.get(name)
            assert partition.last_stable_offset == partition.high_watermark, name
            assert partition.leadership is not None
            assert len(partition.leadership.verifications) == 0
            self._check_log(name)
            self._check_acknowledged(name)

    def _check_acknowledged(self, name: TopicPartition) -> None:
        stored = {
            (int.from_bytes(record.value or b"", "big"), read_header(content).base_sequence)
            for content in self._batches(name)
            if read_end_marker(content) is None
            for record in iter_records(content)
        }
        for made, sent in self.sent:
            if made.partition == name:
                code = get_error(sent.reply.responses[0].partition_responses[0].error_code)
                self.seen[f"batch {code.name}"] += 1
                is_stored = (made.transaction, made.sequence) in stored
                assert is_stored or code is not NONE, f"{name}: {made} is lost"

    def _check_log(self, name: TopicPartition) -> None:
        open_: set[int] = set()  # transactions with a batch and no marker yet
        for content in self._batches(name):
            marker = read_end_marker(content)
            if marker is None:
                open_.update(
                    int.from_bytes(record.value or b"", "big") for record in iter_records(content)
                )
                assert len(open_) == 1, f"{name} mixes transactions {open_}"
            elif open_:
                assert open_ == {marker.coordinator_epoch}, f"{name}: another's marker"
                assert marker.commit is self.coordinator.decisions[marker.coordinator_epoch]
                self.seen["ended"] += 1
                open_.clear()
        assert not open_

    def _batches(self, name: TopicPartition) -> Iterator[bytes]:
        log = self.harness.replicas.get(name).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, below=log.log_end_offset, max_bytes=1, at_least_one=True)
            for piece in read.slices:
                yield os.pread(piece.fd, piece.length, piece.position)
            read.lease.release()
            offset = read.end_offset


STEPS: list[tuple[Callable[[World], None], int]] = [
    (World.send, 6),
    (World.deliver_batch, 6),
    (World.answer_question, 6),
    (World.deliver_answer, 6),
    (World.end, 3),
    (World.send_markers, 1),
    (World.deliver_marker, 5),
]


def live(seed: int, version: int) -> Counter[str]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), chance, version)
        try:
            for _ in range(150):
                step = chance.choices(*zip(*STEPS, strict=True))[0]
                step(world)
            world.settle()
            world.check()
        finally:
            world.harness.close()
    return world.seen


SCENARIOS = {
    1: (
        "NONE",
        "CONCURRENT_TRANSACTIONS",
        "TRANSACTION_ABORTABLE",
        "batch OUT_OF_ORDER_SEQUENCE_NUMBER",
        "marker late NONE",
        "ended",
    ),
    2: (
        "NONE",
        "CONCURRENT_TRANSACTIONS",
        "INVALID_PRODUCER_EPOCH",
        "marker late NONE",
        "marker late INVALID_PRODUCER_EPOCH",
        "ended",
    ),
}


def live_many(count: int, version: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(count):
        seen += live(seed, version)
    return seen


@pytest.mark.parametrize("version", SCENARIOS)
def test_no_transaction_hangs_and_none_mixes_with_another(version: int) -> None:
    seen = live_many(scaled(test=20, verify=400, release=4000), version)
    for scenario in SCENARIOS[version]:
        assert seen[scenario], f"{scenario} was not seen: {seen}"


# -- mutants: each lets something happen that the test above must find --------------------------


def forget_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response counts, whatever happened since the verification."""
    monkeypatch.setattr(Verifications, "on_marker", lambda *_: None)


def take_late_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker ends whatever is open."""
    monkeypatch.setattr("penstock.replication.marker_append.FIRST_WITH_EPOCH_OF_ITS_OWN", 9)


def ask_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.apis.data.transactional_produce._has_transaction", lambda *_: True
    )


@pytest.mark.parametrize(
    ("mutant", "version"),
    [(forget_markers, 1), (take_late_markers, 2), (ask_nobody, 1), (ask_nobody, 2)],
)
def test_a_planted_bug_is_detected(
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    version: int,
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        live_many(200, version)
