"""Apache Kafka's dump tool on logs that Penstock wrote: clean, and the same records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from tests.interop.kafka_corpus import make_records
from tests.interop.kafka_dump import (
    Dump,
    DumpedAborted,
    DumpedRecord,
    assert_dump_clean,
    check_indexes,
    dump_files,
    partition_files,
)
from tests.interop.kafka_jars import KafkaJars
from tests.interop.our_logs import NOW_MS, OurLogs

from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendOrigin
from penstock.storage.log import SegmentedLog

# One worker runs everything that needs Kafka: a second one would only wait for the corpus.
pytestmark = pytest.mark.xdist_group("kafka")

TOPIC_ID = UUID(int=0x1234567890ABCDEF)
TRANSACTIONS = "transactions-0"
COORDINATOR_EPOCH = 7
PRODUCER_EPOCH = 2


@dataclass(slots=True)
class WrittenByUs:
    """Our data directory, closed, and the records appended to each log."""

    data: Path
    appended: dict[str, list[Record]] = field(default_factory=dict)
    aborted: list[DumpedAborted] = field(default_factory=list)
    markers: list[tuple[int, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> WrittenByUs:
    made = WrittenByUs(tmp_path_factory.mktemp("ours"))
    logs = OurLogs(made.data)
    for codec in Codec:
        name = f"{codec.name.lower()}-0"
        made.appended[name] = _append_many(logs, logs.create(name, TOPIC_ID), codec)
    _append_transactions(logs, logs.create(TRANSACTIONS, TOPIC_ID), made)
    logs.close()
    return made


@pytest.fixture(scope="module")
def dump(kafka_jars: KafkaJars, ours: WrittenByUs) -> Dump:
    return dump_files(kafka_jars, _all_files(ours))


def test_kafka_finds_nothing_wrong_with_our_files(dump: Dump) -> None:
    assert_dump_clean(dump)


def test_kafka_would_rebuild_none_of_our_indexes(kafka_jars: KafkaJars, ours: WrittenByUs) -> None:
    assert_dump_clean(check_indexes(kafka_jars, _all_files(ours)))


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_shows_the_records_that_were_appended(
    dump: Dump, ours: WrittenByUs, codec: Codec
) -> None:
    name = f"{codec.name.lower()}-0"
    assert dump.records(ours.data / name) == [_as_dumped(r) for r in ours.appended[name]]
    assert {batch.codec for batch in dump.batches(ours.data / name)} == {codec.name.lower()}
    assert {batch.leader_epoch for batch in dump.batches(ours.data / name)} == {0, 3}


def test_our_logs_have_several_segments_with_all_their_files(ours: WrittenByUs) -> None:
    for name in (*ours.appended, TRANSACTIONS):
        files = partition_files(ours.data / name)
        segments = [path for path in files if path.suffix == ".log"]
        assert len(segments) >= 4, name
        for segment in segments:
            assert segment.with_suffix(".index") in files
            assert segment.with_suffix(".timeindex") in files
        for segment in segments[1:]:
            assert segment.with_suffix(".snapshot") in files
    assert list((ours.data / TRANSACTIONS).glob("*.txnindex"))


def test_our_indexes_have_entries_to_check(ours: WrittenByUs) -> None:
    for name in (f"{codec.name.lower()}-0" for codec in Codec):
        for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
            sizes = [path.stat().st_size for path in (ours.data / name).glob(f"*{suffix}")]
            assert sum(sizes) >= 2 * len(sizes) * entry_bytes, (name, suffix)


def test_kafka_shows_our_transactions_and_their_markers(dump: Dump, ours: WrittenByUs) -> None:
    directory = ours.data / TRANSACTIONS
    records = dump.records(directory)
    assert [(r.offset, r.marker) for r in records if r.marker] == ours.markers
    assert [r for r in records if not r.marker] == [
        _as_dumped(r) for r in ours.appended[TRANSACTIONS]
    ]
    shown = [entry._replace(last_stable_offset=0) for entry in dump.aborted(directory)]
    assert shown == ours.aborted


def test_kafka_reads_the_producers_in_our_snapshots(dump: Dump, ours: WrittenByUs) -> None:
    directory = ours.data / TRANSACTIONS
    producers = {p.producer_id: p for p in dump.producers(max(directory.glob("*.snapshot")))}
    batches = [batch for batch in dump.batches(directory) if not batch.control]
    assert set(producers) == {batch.producer_id for batch in batches}
    for producer_id, producer in producers.items():
        last = [batch.last_offset for batch in batches if batch.producer_id == producer_id][-1]
        assert producer.last_offset == last
        assert producer.coordinator_epoch == COORDINATOR_EPOCH
    assert producers[3].current_txn_first_offset is not None
    assert producers[1].current_txn_first_offset is None


def _append_many(logs: OurLogs, log: SegmentedLog, codec: Codec) -> list[Record]:
    """Appends 600 records in batches of 10, by a producer with two epochs."""
    fresh = _fresh(600, seed=21)
    appended: list[Record] = []
    for start in range(0, len(fresh), 10):
        batch = build_batch(
            _numbered(fresh[start : start + 10]),
            codec=codec,
            producer_id=5,
            producer_epoch=0,
            base_sequence=start,
        )
        base = logs.append(log, batch, leader_epoch=0 if start < 300 else 3).base_offset
        appended += _numbered(fresh[start : start + 10], base)
    return appended


def _append_transactions(logs: OurLogs, log: SegmentedLog, made: WrittenByUs) -> None:
    """Producer 1 commits and 2 aborts, interleaved; 3 commits once and leaves a transaction
    open."""
    made.appended[TRANSACTIONS] = []
    writer = _Writer(logs, log, made)
    for turn in range(12):
        first = writer.send(1, turn)
        aborted_first = writer.send(2, 100 + turn)
        writer.send(1, 200 + turn)
        writer.end(2, commit=False, first_offset=aborted_first)
        writer.end(1, commit=True, first_offset=first)
    writer.end(3, commit=True, first_offset=writer.send(3, 300))
    writer.send(3, 301)


@dataclass(slots=True)
class _Writer:
    logs: OurLogs
    log: SegmentedLog
    made: WrittenByUs
    sequences: dict[int, int] = field(default_factory=dict)

    def send(self, producer_id: int, seed: int) -> int:
        """Appends one transactional batch; returns its base offset."""
        fresh = _fresh(9, seed=seed)
        sequence = self.sequences.get(producer_id, 0)
        batch = build_batch(
            _numbered(fresh),
            codec=Codec.LZ4,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=sequence,
            transactional=True,
        )
        base = self.logs.append(self.log, batch, leader_epoch=0).base_offset
        self.sequences[producer_id] = sequence + len(fresh)
        self.made.appended[TRANSACTIONS] += _numbered(fresh, base)
        return base

    def end(self, producer_id: int, *, commit: bool, first_offset: int) -> None:
        marker = build_end_marker_batch(
            commit=commit,
            coordinator_epoch=COORDINATOR_EPOCH,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH,
            timestamp_ms=NOW_MS,
        )
        offset = self.logs.append(
            self.log, marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR
        ).base_offset
        self.made.markers.append((offset, "COMMIT" if commit else "ABORT"))
        if not commit:
            self.made.aborted.append(DumpedAborted(producer_id, first_offset, offset, 0))


def _fresh(count: int, *, seed: int) -> list[Record]:
    return [
        Record(0, new.timestamp_ms or 0, new.key, new.value, new.headers)
        for new in make_records(count, seed=seed)
    ]


def _numbered(records: list[Record], base: int = 0) -> list[Record]:
    return [record._replace(offset=base + number) for number, record in enumerate(records)]


def _as_dumped(record: Record) -> DumpedRecord:
    keys = tuple(name for name, _ in record.headers)
    return DumpedRecord(record.offset, record.timestamp_ms, record.key, record.value, keys, None)


def _all_files(ours: WrittenByUs) -> list[Path]:
    return [path for name in ours.appended for path in partition_files(ours.data / name)]
