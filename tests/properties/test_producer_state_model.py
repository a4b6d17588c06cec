"""Producer state against a model that keeps the whole history and counts sequences without wrap."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.profile import scaled

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
IDS = st.sampled_from([0, 2**63 - 1])
SELDOM = st.sampled_from([False, False, False, True])  # what would end every long story
COUNTS = st.integers(1, 4)


class Batch(NamedTuple):
    first: int  # counted on beyond 2^31, so that older is always smaller
    last: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass
class Producer:
    epoch: int
    batches: list[Batch] = field(default_factory=list)  # all of this epoch
    remembered: int = 0  # so many of them, the last ones, may be known by offset
    coordinator_epoch: int = -1
    transaction: int | None = None
    timestamp_ms: int = -1

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0


class Sent(NamedTuple):
    """What a client sends, before the wire cuts sequences to 31 bits."""

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
        self.completed: list[tuple[int, int]] = []  # first offset, marker
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
        """A follower or a recovered log begins with whatever the log holds."""
        self.append(Sent(producer_id, epoch, first, first + count - 1, transactional))

    # What a client may do.

    @rule(producer_id=IDS, counts=st.lists(COUNTS, min_size=1, max_size=4), open_=st.booleans())
    def send_next(self, producer_id: int, counts: list[int], open_: bool) -> None:
        for count in counts:
            known = self.producers.get(producer_id)
            first = known.next_sequence if known else 0
            epoch = known.epoch if known else 0
            transactional = open_ or (known is not None and known.transaction is not None)
            sent = Sent(producer_id, epoch, first, first + count - 1, transactional)
            assert self.send(sent) is None

    @rule(producer_id=IDS)
    def send_outside_of_the_transaction(self, producer_id: int) -> None:
        known = self.producers.get(producer_id)
        if known is None or known.transaction is None:
            return
        first = known.next_sequence
        sent = Sent(producer_id, known.epoch, first, first, False)
        assert self.send(sent) is InvalidTransactionState

    @rule(producer_id=IDS, gap=st.integers(1, 6), count=COUNTS, transactional=st.booleans())
    def send_too_early(self, producer_id: int, gap: int, count: int, transactional: bool) -> None:
        known = self.producers.get(producer_id)
        first = (known.next_sequence if known else 0) + gap
        epoch = known.epoch if known else 0
        sent = Sent(producer_id, epoch, first, first + count - 1, transactional)
        assert self.send(sent) is (OutOfOrderSequence if known else UnknownProducer)

    @invariant()
    def knows_batches_that_come_again(self) -> None:
        """The remembered ones by their offsets; of older ones only that they were stored."""
        for producer_id, known in self.producers.items():
            for age, batch in enumerate(reversed(known.batches[-9:]), start=1):
                sent = Sent(producer_id, known.epoch, batch.first, batch.last, True)
                found = self.state.find_duplicate(*sent.on_the_wire)
                if age <= known.remembered:
                    assert found is not None
                    assert found[:2] == (batch.base_offset, batch.last_offset)
                else:
                    assert found is None
                    assert self.send(sent) in (DuplicateSequence, OutOfOrderSequence)

    @rule(producer_id=IDS, step=st.integers(1, 2), first=st.sampled_from([1, 2, 5, 0]))
    def send_with_new_epoch(self, producer_id: int, step: int, first: int) -> None:
        known = self.producers.get(producer_id)
        epoch = min((known.epoch if known else -1) + step, 32767)
        first += known.next_sequence if known and known.epoch == epoch else 0
        self.send(Sent(producer_id, epoch, first, first + 2, True))

    @rule(producer_id=IDS, count=COUNTS)
    def send_as_a_zombie(self, producer_id: int, count: int) -> None:
        known = self.producers.get(producer_id)
        if known is None or known.epoch == 0:
            return
        sent = Sent(producer_id, known.epoch - 1, 0, count - 1, False)
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
        known = self.producers.get(sent.producer_id)
        if known is None:
            return UnknownProducer if sent.first else None
        if sent.epoch < known.epoch:
            return InvalidProducerEpoch
        expected = known.next_sequence if sent.epoch == known.epoch else 0
        if sent.first % SEQUENCES != expected % SEQUENCES:
            return DuplicateSequence if self.is_long_ago(sent, known) else OutOfOrderSequence
        if known.transaction is not None and not sent.transactional:
            return InvalidTransactionState
        return None

    def is_long_ago(self, sent: Sent, known: Producer) -> bool:
        if sent.epoch != known.epoch or not known.remembered:
            return False
        oldest = known.batches[-known.remembered].first
        same_round = sent.last // SEQUENCES == oldest // SEQUENCES
        return sent.last < oldest and same_round  # over the wrap nothing is sure

    def append(self, sent: Sent) -> None:
        base_offset = self.end_offset
        last_offset = base_offset + sent.last - sent.first
        self.end_offset = last_offset + 1
        self.state.apply(
            *sent.on_the_wire, base_offset, last_offset, self.now_ms, sent.transactional
        )
        known = self.at_epoch(sent.producer_id, sent.epoch)
        known.batches.append(Batch(sent.first, sent.last, base_offset, last_offset, self.now_ms))
        known.remembered = min(known.remembered + 1, 5)
        known.timestamp_ms = self.now_ms
        if sent.transactional and known.transaction is None:
            known.transaction = base_offset

    def at_epoch(self, producer_id: int, epoch: int) -> Producer:
        known = self.producers.setdefault(producer_id, Producer(epoch))
        if known.epoch != epoch:
            known.epoch, known.batches, known.remembered = epoch, [], 0
        return known

    # What coordinators, replicas and time do.

    @rule(
        producer_id=IDS,
        step=st.sampled_from([0, 0, 0, 0, -1, 1]),
        coordinator_step=st.sampled_from([-1, 0, 0, 1]),
        commit=st.booleans(),
    )
    def mark(self, producer_id: int, step: int, coordinator_step: int, commit: bool) -> None:
        known = self.producers.get(producer_id, Producer(0))
        epoch = min(max(known.epoch + step, 0), 32767)
        coordinator_epoch = max(known.coordinator_epoch + coordinator_step, 0)
        try:
            self.state.check_marker(producer_id, epoch, coordinator_epoch)
        except InvalidProducerEpoch:
            assert epoch < known.epoch
            return
        except CoordinatorFenced:
            assert epoch >= known.epoch
            assert coordinator_epoch < known.coordinator_epoch
            return
        assert epoch >= known.epoch
        assert coordinator_epoch >= known.coordinator_epoch
        self.append_marker(producer_id, epoch, coordinator_epoch, commit)

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool
    ) -> None:
        offset = self.end_offset
        self.end_offset += 1
        known = self.at_epoch(producer_id, epoch)
        completed = self.state.apply_marker(
            producer_id, epoch, coordinator_epoch, commit, offset, self.now_ms
        )
        known.coordinator_epoch = coordinator_epoch
        known.timestamp_ms = self.now_ms
        if known.transaction is None:
            assert completed is None
            return
        assert completed == (producer_id, known.transaction, offset, not commit)
        self.completed.append((known.transaction, offset))
        known.transaction = None
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
            for producer_id, known in self.producers.items()
            if known.transaction is None and self.now_ms - known.timestamp_ms >= EXPIRATION_MS
        ]
        for producer_id in idle:
            del self.producers[producer_id]
        assert self.state.expire(self.now_ms, EXPIRATION_MS) == len(idle)

    @rule(now=SELDOM)
    def restart_from_a_snapshot(self, now: bool) -> None:
        """All later checks are as without it, but for the depth of the duplicate window."""
        if not now:
            return
        entries = decode(encode(self.state.producers()))
        self.state = ProducerStateManager()
        self.state.load(entries, map_end_offset=self.end_offset)
        self.completed = []  # a log starts anew with all it has below its high watermark
        for known in self.producers.values():
            known.remembered = min(known.remembered, 1)

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
        known = self.producers[producer_id]
        last_sequence, last_offset, delta = -1, -1, 0
        if known.batches:
            last = known.batches[-1]
            last_sequence = last.last % SEQUENCES
            last_offset, delta = last.last_offset, last.last - last.first
        return (
            producer_id,
            known.epoch,
            last_sequence,
            last_offset,
            delta,
            known.timestamp_ms,
            known.coordinator_epoch,
            known.transaction,
        )


TestProducerState = ProducerMachine.TestCase
TestProducerState.settings = settings(
    max_examples=scaled(test=200, verify=1000, release=20_000),
    stateful_step_count=50,
    deadline=None,
)
