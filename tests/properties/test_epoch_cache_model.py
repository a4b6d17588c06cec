"""The epoch cache against two models: a list searched by brute force, and a log of records."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.profile import scaled

from penstock.storage.leader_epoch_cache import LeaderEpochCache, decode_epochs, encode_epochs

SETTINGS = settings(
    max_examples=scaled(test=60, verify=1000, release=20_000),
    stateful_step_count=50,
    deadline=None,
)
MAX_EPOCH = 2**31 - 1
MAX_OFFSET = 2**63 - 1
EPOCHS = st.integers(0, 8) | st.sampled_from([MAX_EPOCH - 1, MAX_EPOCH])
OFFSETS = st.integers(0, 12) | st.sampled_from([MAX_OFFSET - 1, MAX_OFFSET])
ASKED_EPOCHS = [*range(-1, 10), MAX_EPOCH - 1, MAX_EPOCH]
ASKED_OFFSETS = [*range(14), MAX_OFFSET - 1, MAX_OFFSET]


class AnyOrder(RuleBasedStateMachine):
    """Epochs and offsets in any order, even ones that a valid log never has."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = LeaderEpochCache()
        self.model: list[tuple[int, int]] = []

    @rule(epoch=EPOCHS, offset=OFFSETS)
    def assign(self, epoch: int, offset: int) -> None:
        latest = max(self.model, default=None)
        changes = latest is None or latest[0] != epoch or offset < latest[1]
        if changes:
            self.model = [(e, o) for e, o in self.model if e < epoch and o < offset]
            self.model.append((epoch, offset))
        self.cache.dirty = False
        assert self.cache.assign(epoch, offset) == changes
        assert self.cache.dirty == changes

    @rule(offset=OFFSETS)
    def truncate_from_end(self, offset: int) -> None:
        kept = [(e, o) for e, o in self.model if o < offset]
        self.change(lambda: self.cache.truncate_from_end(offset), kept)

    @rule(offset=OFFSETS)
    def truncate_from_start(self, offset: int) -> None:
        covering = [(e, o) for e, o in self.model if o <= offset][-1:]
        moved = [(e, offset) for e, _ in covering]
        kept = moved + [(e, o) for e, o in self.model if o > offset]
        self.change(lambda: self.cache.truncate_from_start(offset), kept)

    @rule()
    def write_and_read_again(self) -> None:
        self.cache = LeaderEpochCache(decode_epochs(encode_epochs(self.cache.entries), "f"))
        assert not self.cache.dirty

    @precondition(lambda self: len(self.model) > 3)
    @rule()
    def clear(self) -> None:
        self.change(self.cache.clear, [])

    def change(self, action: Callable[[], None], model: list[tuple[int, int]]) -> None:
        self.cache.dirty = False
        action()
        assert self.cache.dirty == (model != self.model)
        self.model = model

    @invariant()
    def says_what_the_model_says(self) -> None:
        assert list(self.cache.entries) == self.model
        assert self.cache.latest == max([e for e, _ in self.model], default=-1)
        for offset in ASKED_OFFSETS:
            before = [e for e, o in self.model if o <= offset]
            assert self.cache.find_epoch_at(offset) == max(before, default=None)
        for epoch in ASKED_EPOCHS:
            assert self.cache.find_end_offset(epoch, MAX_OFFSET) == self.end_of(epoch)

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        epochs = [e for e, _ in self.model]
        if epoch in epochs and epoch == max(epochs):
            return epoch, MAX_OFFSET
        later = [o for e, o in self.model if e > epoch]
        if epoch < 0 or not later:
            return None
        return max([e for e in epochs if e <= epoch], default=epoch), min(later)

    @invariant()
    def epochs_and_offsets_strictly_increase(self) -> None:
        entries = self.cache.entries
        for former, latter in pairwise(entries):
            assert former.epoch < latter.epoch
            assert former.start_offset < latter.start_offset


class LogOfRecords(RuleBasedStateMachine):
    """A valid log: each record has its epoch, and the cache must have all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = LeaderEpochCache()
        self.start = 0
        self.records: list[int] = []  # the epoch of each record, from offset `start`
        self.empty_epoch: int | None = None  # an epoch that began at the end and has no record yet

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def latest(self) -> int:
        return max([*self.records, -1 if self.empty_epoch is None else self.empty_epoch, -1])

    @rule(step=st.integers(0, 3))
    def lead(self, step: int) -> None:
        """As a new leader does, before it has any record (KAFKA-7415)."""
        epoch = self.latest + step
        if epoch < 0:
            return
        if epoch != self.latest:
            self.empty_epoch = epoch
        self.cache.assign(epoch, self.end)

    @rule(step=st.integers(0, 2), count=st.integers(1, 4))
    def append(self, step: int, count: int) -> None:
        """As a follower does: epochs come with the batches."""
        epoch = max(self.latest + step, 0)
        self.cache.assign(epoch, self.end)
        self.records += [epoch] * count
        self.empty_epoch = None

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round(share * len(self.records))
        del self.records[offset - self.start :]
        self.empty_epoch = None
        self.cache.truncate_from_end(offset)

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        offset = self.start + round(share * len(self.records))
        if offset == self.end and self.latest >= 0:
            self.empty_epoch = self.latest  # the cache keeps the last epoch of an emptied log
        del self.records[: offset - self.start]
        self.start = offset
        self.cache.truncate_from_start(offset)

    @invariant()
    def every_record_has_its_epoch(self) -> None:
        for offset, epoch in enumerate(self.records, start=self.start):
            assert self.cache.find_epoch_at(offset) == epoch
        assert self.cache.latest == self.latest

    @invariant()
    def every_epoch_ends_before_the_first_record_of_a_later_one(self) -> None:
        records = list(enumerate(self.records, start=self.start))
        if self.empty_epoch is not None:
            records.append((self.end, self.empty_epoch))
        for epoch in range(-1, self.latest + 3):
            answer = self.cache.find_end_offset(epoch, self.end)
            if epoch < 0 or epoch > self.latest:
                assert answer is None
                continue
            end = min([o for o, e in records if e > epoch], default=self.end)
            assert answer == (max([e for _, e in records if e <= epoch], default=epoch), end)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = SETTINGS
TestLogOfRecords = LogOfRecords.TestCase
TestLogOfRecords.settings = SETTINGS
