"""Offsets committed inside and outside transactions: log and compacted log agree."""

from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.coordinators.group.coordinator_harness import replay_batches
from tests.unit.storage.compacted_logs import Table

from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import GroupRecord, OffsetKey, OffsetValue, encode_record
from penstock.model.ids import TopicPartition

RETENTION_MS = 1_000
PLAIN = -1
PRODUCERS = (11, 12)
KEYS = [OffsetKey(group, "orders", number) for group in "ab" for number in range(2)]


class Put(NamedTuple):
    producer: int
    records: list[tuple[OffsetKey, int | None]]


class End(NamedTuple):
    producer: int
    commit: bool


class Compact(NamedTuple):
    wait_ms: int


values = st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9))
puts = st.builds(
    Put,
    st.sampled_from([PLAIN, PLAIN, *PRODUCERS]),
    st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=3),
)
steps = st.one_of(
    puts,
    puts,
    puts,
    st.builds(End, st.sampled_from(PRODUCERS), st.booleans()),
    st.builds(Compact, st.sampled_from([0, RETENTION_MS])),
)


class Model:
    """The store after it replays the log, and what a `read_committed` reader would end up with."""

    def __init__(self) -> None:
        self.table = Table(
            segment_bytes=400, delete_retention_ms=RETENTION_MS, min_cleanable_dirty_ratio=0.0
        )
        self.store = OffsetStore()
        self.committed: dict[OffsetKey, tuple[int, int]] = {}  # and the offset of the record
        self.open: dict[int, dict[OffsetKey, tuple[int, int]]] = {}

    def run(self, step: Put | End | Compact) -> None:
        match step:
            case Put(producer, records):
                self._put(producer, records)
            case End(producer, commit):
                self._end(producer, commit=commit)
            case Compact(wait_ms):
                self.table.roll()
                self.table.now_ms += wait_ms
                self.table.compact()

    def _put(self, producer: int, records: list[tuple[OffsetKey, int | None]]) -> None:
        if producer != PLAIN:  # tombstones are written by the coordinator, in no transaction
            records = [record for record in records if record[1] is not None]
        if not records:
            return
        made = [
            GroupRecord(key, None if value is None else OffsetValue(value, -1, "", 0))
            for key, value in records
        ]
        base_offset = self.table.put(
            *(encode_record(record) for record in made),
            pid=producer,
            transactional=producer != PLAIN,
        )
        for offset, record in enumerate(made, base_offset):
            self._note(record, offset, producer)

    def _note(self, record: GroupRecord, offset: int, producer: int) -> None:
        key, value = record
        assert isinstance(key, OffsetKey)
        assert value is None or isinstance(value, OffsetValue)
        self.store.replay(key, value, record_offset=offset, producer_id=producer)
        if value is None:
            for pending in (self.committed, *self.open.values()):
                pending.pop(key, None)
        elif producer == PLAIN:
            self.committed[key] = value.offset, offset
        else:
            self.open.setdefault(producer, {})[key] = value.offset, offset

    def _end(self, producer: int, *, commit: bool) -> None:
        self.table.end(producer, commit=commit)
        self.store.end_transaction(producer, commit=commit)
        ended = self.open.pop(producer, {})
        for key, (value, offset) in ended.items() if commit else ():
            if self.committed.get(key, (0, -1))[1] < offset:
                self.committed[key] = value, offset

    def check(self) -> None:
        stored = replay_batches(content for _, content in self.table.batches())
        assert stored.offsets.snapshot() == self.store.snapshot()
        for key in KEYS:
            partition = TopicPartition(key.topic, key.partition)
            value = self.store.find(key.group, partition)
            expected = self.committed.get(key)
            assert (value and value.offset) == (expected and expected[0])
            is_pending = any(key in pending for pending in self.open.values())
            assert (partition in self.store.pending_of(key.group)) == is_pending


@settings(
    max_examples=scaled(test=100, verify=1_000, release=20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(steps, min_size=10, max_size=50))
def test_transactions_deletions_and_compaction_agree_on_what_is_committed(
    history: list[Put | End | Compact],
) -> None:
    model = Model()
    for step in history:
        model.run(step)
        model.check()
