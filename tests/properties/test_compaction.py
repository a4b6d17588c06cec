"""Random histories of a compacted log, random passes, and what no pass may change."""

from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.storage.compacted_logs import (
    FOLDER,
    Seen,
    Table,
    iter_batches,
    lasting,
    make_log,
    read_committed,
    table_of,
)

from penstock.config.log_config import StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import Offset
from penstock.protocol.compression import Codec
from penstock.storage.offset_map import ENTRY_BYTES
from penstock.storage.recovery import CheckpointedOffsets, open_log

RETENTION_MS = 1_000
LAG_MS = 300
PLAIN_PRODUCER = -1
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12, 13)
KEYS = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"a key that is longer than a digest",
    b"another key of the same length ....",
]


class Put(NamedTuple):
    producer: int
    records: list[tuple[bytes, bytes | None]]
    codec: Codec


class End(NamedTuple):
    producer: int
    commit: bool


class Roll(NamedTuple):
    pass


class Wait(NamedTuple):
    duration_ms: int


class Compact(NamedTuple):
    map_entries: int


Step = Put | End | Roll | Wait | Compact

values = st.one_of(st.none(), st.binary(max_size=6), st.just(b"v" * 60))
puts = st.builds(
    Put,
    st.sampled_from([PLAIN_PRODUCER, *IDEMPOTENT, *TRANSACTIONAL, *TRANSACTIONAL]),
    st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=4),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY]),
)
steps = st.one_of(
    puts,
    puts,
    puts,
    st.builds(End, st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.builds(Roll),
    st.builds(Wait, st.sampled_from([10, LAG_MS, RETENTION_MS])),
    st.builds(Compact, st.sampled_from([1, 3, 1_000])),
)
histories = st.lists(steps, min_size=8, max_size=40)
thorough = settings(
    max_examples=scaled(test=40, verify=1_000, release=5_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Model:
    """A compacted log with its whole history."""

    def __init__(self, **config: object) -> None:
        self.table = Table(segment_bytes=600, delete_retention_ms=RETENTION_MS, **config)
        self.open: set[int] = set()
        self.epochs = dict.fromkeys(TRANSACTIONAL, 0)
        self.tombstones: dict[int, int] = {}  # offset -> its delete horizon
        self.held: set[int] = set()  # the end offsets that the last pass had to keep reachable

    def run(self, step: Step) -> None:
        match step:
            case Put(producer, records, codec):
                self._put(producer, records, codec)
            case End(producer, commit):
                self._end(producer, commit)
            case Roll():
                self.table.roll()
            case Wait(duration_ms):
                self.table.now_ms += duration_ms
            case Compact(map_entries):
                self.compact(map_entries)

    def _put(self, producer: int, records: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        transactional = producer in TRANSACTIONAL
        if transactional:
            self.open.add(producer)
        self.table.put(
            *records,
            pid=producer,
            epoch=self.epochs.get(producer, 0),
            transactional=transactional,
            codec=codec,
        )

    def _end(self, producer: int, commit: bool) -> None:
        """Ends a transaction as clients do; sometimes one without records, or with a bumped
        epoch."""
        if producer not in self.open and commit:
            self.epochs[producer] += 1
        self.open.discard(producer)
        self.table.end(producer, commit=commit, epoch=self.epochs[producer])

    def compact(self, map_entries: int = 1_000) -> None:
        """Runs one pass, and checks everything that it may not change."""
        table, log = self.table, self.table.log
        before, committed = table.everything(), table.committed()
        end_offset, stable = log.log_end_offset, log.last_stable_offset
        producers = lasting(list(log.producers.producers()))
        cleaned = log.cleaned_offset
        storage = StorageConfig(cleaner_dedupe_buffer_bytes=map_entries * ENTRY_BYTES)
        result = table.compact(storage)
        assert result is None or result.problem is None
        if result is not None:
            self.held = {end_offset, stable}
        after, committed_after = table.everything(), table.committed()
        assert log.cleaned_offset >= cleaned
        assert log.log_end_offset == end_offset
        assert log.last_stable_offset == stable
        assert table_of(committed_after) == table_of(committed)
        assert set(committed_after) <= set(committed), "an aborted or changed record shows"
        assert set(after) <= set(before)
        assert [seen.offset for seen in after] == sorted({seen.offset for seen in after})
        self._check_latest_stay(committed, committed_after)
        self._check_empty_batches()
        self._check_reopened(committed_after, producers)

    def _check_empty_batches(self) -> None:
        """Checks that a batch without records stays only as its producer's last, or to hold an end
        that readers wait for: the log end or the last stable offset."""
        log = self.table.log
        cleaned_end = min(log.cleaned_offset, log.segments.active.base_offset)
        lasts = {entry.last_offset for entry in log.producers.producers()}
        ends = {log.log_end_offset, log.last_stable_offset, *self.held}
        for header, _ in self.table.batches():
            if not header.record_count and header.last_offset < cleaned_end:
                is_end = header.next_offset in ends
                assert header.last_offset in lasts or is_end, f"{header} is not needed"

    def _check_latest_stay(self, before: list[Seen], after: list[Seen]) -> None:
        """Checks that the latest record of each key stays, and a tombstone until its delete
        horizon."""
        latest = {seen.key: seen for seen in before}
        remaining = set(after)
        now_ms = self.table.now_ms
        for seen in latest.values():
            if seen.value is not None:
                assert seen in remaining
            elif seen not in remaining:
                assert self.tombstones[seen.offset] <= now_ms
        for seen in after:
            if seen.value is None and seen.offset < self.table.log.cleaned_offset:
                self.tombstones.setdefault(seen.offset, now_ms + RETENTION_MS)

    def _check_reopened(
        self, committed: list[Seen], producers: dict[int, tuple[int, int, int, int, int | None]]
    ) -> None:
        log = self.table.reopened()
        assert lasting(list(log.producers.producers())) == producers
        assert log.log_end_offset == self.table.log.log_end_offset
        assert read_committed(log) == committed

    def settle(self) -> None:
        """Ends all transactions and compacts until nothing is dirty."""
        for producer in sorted(self.open):
            self._end(producer, commit=False)
        self.table.roll()
        self.compact()
        assert self.table.log.cleaned_offset == self.table.log.segments.active.base_offset


@thorough
@given(histories)
def test_compaction_changes_nothing_but_what_is_obsolete(history: list[Step]) -> None:
    model = Model()
    for step in history:
        model.run(step)
    model.compact()


@thorough
@given(histories)
def test_compaction_finally_leaves_one_record_per_key_and_no_tombstone(history: list[Step]) -> None:
    model = Model()
    for step in history:
        model.run(step)
    model.settle()
    committed = model.table.committed()
    keys = [seen.key for seen in committed]
    assert len(keys) == len(set(keys))
    assert model.table.everything() == committed, "records of aborted transactions are left"
    model.table.now_ms += RETENTION_MS
    model.compact()
    model.compact()
    table = {seen.key: seen.value for seen in model.table.everything()}
    assert table == table_of(committed)


@thorough
@given(histories)
def test_a_pass_over_an_unchanged_log_changes_nothing(history: list[Step]) -> None:
    model = Model()
    for step in history:
        model.run(step)
    model.settle()
    records = model.table.everything()
    # Small segments are merged again, and lose the empty batches that held their ends.
    for _ in range(len(model.table.log.segments) + 2):
        before = model.table.disk.files()
        model.compact()
        assert model.table.everything() == records
    assert model.table.disk.files() == before


@thorough
@given(histories)
def test_records_younger_than_the_lag_stay(history: list[Step]) -> None:
    model = Model(min_compaction_lag_ms=LAG_MS)
    table = model.table
    for step in history:
        young_from_ms = table.now_ms - LAG_MS
        before = table.committed()
        model.run(step)
        if isinstance(step, Compact):
            after = set(table.committed())
            assert all(seen in after for seen in before if seen.timestamp_ms > young_from_ms)


@thorough
@given(histories)
def test_recovery_after_a_kill_finds_a_compacted_log_whole(history: list[Step]) -> None:
    model = Model()
    for step in history:
        model.run(step)
    model.settle()
    table, log = model.table, model.table.log
    disk = table.disk.survivor_of_kill()
    recovered = make_log(disk, table.config)
    nothing = Offset(0)
    remembered = CheckpointedOffsets(
        clean=False,
        recovery_point=log.durable_offset,
        log_start_offset=nothing,
        high_watermark=log.high_watermark,
        cleaned_offset=nothing,
    )
    reports: list[str] = []
    names = {entry.name for entry in disk.list(FOLDER)}
    open_log(recovered, disk, names, remembered, table.now_ms, message_logger(reports.append))
    assert list(iter_batches(recovered)) == table.batches()
    assert recovered.log_end_offset == log.log_end_offset
    assert read_committed(recovered) == table.committed()
    assert lasting(list(recovered.producers.producers())) == lasting(
        list(log.producers.producers())
    )
