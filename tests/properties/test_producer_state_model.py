"""Producer state against a model that keeps the whole history and counts sequences without
wrapping."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.profile import scaled

from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.storage.errors import (
    CoordinatorFenced,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
    UnknownProducer,
)
from penstock.storage.producer_snapshot import decode, encode
from penstock.storage.producer_state_manager import ProducerStateManager

SEQUENCES = 2**31
EXPIRATION_MS = 100
IDS = st.sampled_from([0, FIRST_DELIVERER_ID - 1])
SELDOM = st.sampled_from([False, False, False, True])  # else runs stay short
COUNTS = st.integers(1, 4)


class Batch(NamedTuple):
    first: int  # continues beyond 2^31, so that older is always smaller
    last: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass
class Producer:
    epoch: int
    batches: list[Batch] = field(default_factory=list)  # all batches of this epoch
    # Number of the last batches whose offsets may be known; none of them is before the last marker.
    remembered: int = 0
    coordinator_epoch: int = -1
    marker: int = -1  # offset of the last marker
    transaction: int | None = None
    timestamp_ms: int = -1

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0


class Sent(NamedTuple):
    """A batch as a client counts it, before sequences wrap to 31 bits."""

    producer_id: int
    epoch: int
    first: int
    last: int
    transactional: bool

    @property
    def on_the_wire(self) -> tuple[int, int, int, int]:
        return (self.producer_id, self.epoch, self.first % SEQUENCES, self.last % SEQUENCES)


class ProducerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerStateManager()
        self.producers: dict[int, Producer] = {}
        self.completed: list[tuple[int, int]] = []  # first offset and marker of each transaction
        self.end_offset = 0
        self.now_ms = 1_000_000

    @initialize(
        producer_id=IDS,
        epoch=st.sampled_from([0, 1, 32764, 32766]),
        first=st.sampled_from([SEQUENCES - 3, 0, 40]),
        count=COUNTS,
        transactional=st.booleans(),
    )
    def begin_anywhere(
        self, producer_id: int, epoch: int, first: int, count: int, transactional: bool
    ) -> None:
        """A follower or a recovered log starts with any content of the log."""
        self.append(Sent(producer_id, epoch, first, first + count - 1, transactional))

    # What a client may do.

    @rule(producer_id=IDS, counts=st.lists(COUNTS, min_size=1, max_size=4), open_=st.booleans())
    def send_next(self, producer_id: int, counts: list[int], open_: bool) -> None:
        for count in counts:
            producer = self.producers.get(producer_id)
            first = producer.next_sequence if producer else 0
            epoch = producer.epoch if producer else 0
            transactional = open_ or (producer is not None and producer.transaction is not None)
            sent = Sent(producer_id, epoch, first, first + count - 1, transactional)
            assert self.send(sent) is None

    @rule(producer_id=IDS)
    def send_outside_of_the_transaction(self, producer_id: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is None or producer.transaction is None:
            return
        first = producer.next_sequence
        sent = Sent(producer_id, producer.epoch, first, first, False)
        assert self.send(sent) is InvalidTransactionState

    @rule(producer_id=IDS, gap=st.integers(1, 6), count=COUNTS, transactional=st.booleans())
    def send_too_early(self, producer_id: int, gap: int, count: int, transactional: bool) -> None:
        producer = self.producers.get(producer_id)
        first = (producer.next_sequence if producer else 0) + gap
        epoch = producer.epoch if producer else 0
        sent = Sent(producer_id, epoch, first, first + count - 1, transactional)
        assert self.send(sent) is (OutOfOrderSequence if producer else UnknownProducer)

    @invariant()
    def knows_batches_that_come_again(self) -> None:
        """Batches in the window with their offsets; older ones only as duplicates, and those
        before the last marker not at all."""
        for producer_id, producer in self.producers.items():
            for age, batch in enumerate(reversed(producer.batches[-9:]), start=1):
                sent = Sent(producer_id, producer.epoch, batch.first, batch.last, True)
                duplicate = self.state.find_duplicate(*sent.on_the_wire)
                if age <= producer.remembered:
                    assert duplicate is not None
                    assert duplicate[:2] == (batch.base_offset, batch.last_offset)
                else:
                    assert duplicate is None
                    refusals = {DuplicateSequence, OutOfOrderSequence}
                    if batch.last_offset < producer.marker:
                        refusals = {OutOfOrderSequence}
                    assert self.send(sent) in refusals

    @rule(producer_id=IDS, step=st.integers(1, 2), first=st.sampled_from([1, 2, 5, 0]))
    def send_with_new_epoch(self, producer_id: int, step: int, first: int) -> None:
        producer = self.producers.get(producer_id)
        epoch = min((producer.epoch if producer else -1) + step, 32767)
        first += producer.next_sequence if producer and producer.epoch == epoch else 0
        self.send(Sent(producer_id, epoch, first, first + 2, True))

    @rule(producer_id=IDS, count=COUNTS)
    def send_as_a_zombie(self, producer_id: int, count: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch == 0:
            return
        sent = Sent(producer_id, producer.epoch - 1, 0, count - 1, False)
        assert self.state.find_duplicate(*sent.on_the_wire) is None
        assert self.send(sent) is InvalidProducerEpoch

    def send(self, sent: Sent) -> type[StorageError] | None:
        before = self.state.producers()
        expected = self.judge(sent)
        assert self.outcome(sent) is expected
        assert self.state.producers() == before
        if expected is DuplicateSequence:
            assert sent.last < self.producers[sent.producer_id].next_sequence
        if expected is None:
            self.append(sent)
        return expected

    def outcome(self, sent: Sent) -> type[StorageError] | None:
        producer_id, epoch, base_sequence, last_sequence = sent.on_the_wire
        try:
            self.state.check(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=base_sequence,
                last_sequence=last_sequence,
                transactional=sent.transactional,
            )
        except StorageError as error:
            return type(error)
        return None

    def judge(self, sent: Sent) -> type[StorageError] | None:
        producer = self.producers.get(sent.producer_id)
        if producer is None:
            return UnknownProducer if sent.first else None
        if sent.epoch < producer.epoch:
            return InvalidProducerEpoch
        expected = producer.next_sequence if sent.epoch == producer.epoch else 0
        if sent.first % SEQUENCES != expected % SEQUENCES:
            return DuplicateSequence if self.is_long_ago(sent, producer) else OutOfOrderSequence
        if producer.transaction is not None and not sent.transactional:
            return InvalidTransactionState
        return None

    def is_long_ago(self, sent: Sent, producer: Producer) -> bool:
        if sent.epoch != producer.epoch or not producer.remembered or producer.marker >= 0:
            return False
        oldest = producer.batches[-producer.remembered].first
        same_round = sent.last // SEQUENCES == oldest // SEQUENCES
        return sent.last < oldest and same_round  # undecidable beyond the wrap

    def append(self, sent: Sent) -> None:
        base_offset = self.end_offset
        last_offset = base_offset + sent.last - sent.first
        self.end_offset = last_offset + 1
        self.state.apply(
            *sent.on_the_wire, base_offset, last_offset, self.now_ms, sent.transactional
        )
        producer = self.at_epoch(sent.producer_id, sent.epoch)
        producer.batches.append(Batch(sent.first, sent.last, base_offset, last_offset, self.now_ms))
        producer.remembered = min(producer.remembered + 1, 5)
        producer.timestamp_ms = self.now_ms
        if sent.transactional and producer.transaction is None:
            producer.transaction = base_offset

    def at_epoch(self, producer_id: int, epoch: int) -> Producer:
        producer = self.producers.setdefault(producer_id, Producer(epoch))
        if producer.epoch != epoch:
            producer.epoch, producer.batches, producer.remembered = epoch, [], 0
        return producer

    # What coordinators, replicas and time do.

    @rule(
        producer_id=IDS,
        step=st.sampled_from([0, 0, 0, 0, -1, 1]),
        coordinator_step=st.sampled_from([-1, 0, 0, 1]),
        commit=st.booleans(),
    )
    def mark(self, producer_id: int, step: int, coordinator_step: int, commit: bool) -> None:
        producer = self.producers.get(producer_id, Producer(0))
        epoch = min(max(producer.epoch + step, 0), 32767)
        coordinator_epoch = max(producer.coordinator_epoch + coordinator_step, 0)
        try:
            self.state.check_marker(producer_id, epoch, coordinator_epoch)
        except InvalidProducerEpoch:
            assert epoch < producer.epoch
            return
        except CoordinatorFenced:
            assert epoch >= producer.epoch
            assert coordinator_epoch < producer.coordinator_epoch
            return
        assert epoch >= producer.epoch
        assert coordinator_epoch >= producer.coordinator_epoch
        self.append_marker(producer_id, epoch, coordinator_epoch, commit)

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool
    ) -> None:
        offset = self.end_offset
        self.end_offset += 1
        producer = self.at_epoch(producer_id, epoch)
        completed = self.state.apply_marker(
            producer_id, epoch, coordinator_epoch, commit, offset, self.now_ms
        )
        producer.coordinator_epoch = coordinator_epoch
        producer.marker, producer.remembered = offset, 0
        producer.timestamp_ms = self.now_ms
        if producer.transaction is None:
            assert completed is None
            return
        assert completed == (producer_id, producer.transaction, offset, not commit)
        self.completed.append((producer.transaction, offset))
        producer.transaction = None
        undecided = min(self.undecided(), default=offset + 1)
        assert self.state.last_stable_offset_for(completed) == undecided

    def undecided(self) -> Iterator[int]:
        return (p.transaction for p in self.producers.values() if p.transaction is not None)

    @rule(below_end=st.integers(0, 20))
    def raise_high_watermark(self, below_end: int) -> None:
        high_watermark = max(self.end_offset - below_end, 0)
        self.state.on_high_watermark(high_watermark)
        self.completed = [(f, m) for f, m in self.completed if m >= high_watermark]

    @rule(elapsed_ms=st.sampled_from([0, 1, 2, 3, 5, EXPIRATION_MS]))
    def expire(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        idle = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction is None and self.now_ms - producer.timestamp_ms >= EXPIRATION_MS
        ]
        for producer_id in idle:
            del self.producers[producer_id]
        assert self.state.expire(self.now_ms, EXPIRATION_MS) == len(idle)

    @rule(now=SELDOM)
    def restart_from_a_snapshot(self, now: bool) -> None:
        """Later checks are unchanged, except for the depth of the duplicate window."""
        if not now:
            return
        entries = decode(encode(self.state.producers()))
        self.state = ProducerStateManager()
        self.state.load(entries, map_end_offset=self.end_offset)
        self.completed = []  # a restarted log has all its records below the high watermark
        for producer in self.producers.values():
            # After a marker, only a batch of an open transaction is certain to follow it.
            is_unsure = producer.marker >= 0 and producer.transaction is None
            producer.remembered = 0 if is_unsure else min(producer.remembered, 1)

    @invariant()
    def shows_what_the_model_knows(self) -> None:
        assert len(self.state) == len(self.producers)
        assert self.state.map_end_offset == self.end_offset
        unstable = [*self.undecided(), *(first for first, _ in self.completed)]
        assert self.state.first_unstable_offset == min(unstable, default=None)
        for entry in self.state.producers():
            assert entry == self.view(entry.producer_id)
            assert self.state.find(entry.producer_id) == entry

    def view(self, producer_id: int) -> tuple[int | None, ...]:
        producer = self.producers[producer_id]
        last_sequence, last_offset, delta = -1, -1, 0
        if producer.batches:
            last = producer.batches[-1]
            last_sequence = last.last % SEQUENCES
            last_offset, delta = last.last_offset, last.last - last.first
        return (
            producer_id,
            producer.epoch,
            last_sequence,
            last_offset,
            delta,
            producer.timestamp_ms,
            producer.coordinator_epoch,
            producer.transaction,
        )


TestProducerState = ProducerMachine.TestCase
TestProducerState.settings = settings(
    max_examples=scaled(test=100, verify=1000, release=20_000),
    stateful_step_count=50,
    deadline=None,
)
