"""Apache Kafka's dump tool on logs that Penstock has compacted, its own and Kafka's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.interop.kafka_broker import NewRecord
from tests.interop.kafka_corpus import COMPACTED, Corpus, make_records
from tests.interop.kafka_dump import (
    Dump,
    assert_dump_clean,
    check_indexes,
    dump_files,
    partition_files,
)
from tests.interop.kafka_jars import KafkaJars
from tests.interop.our_logs import NOW_MS, SMALL_SEGMENTS, OurLogs, read_records

from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendOrigin
from penstock.storage.log import SegmentedLog

# One worker runs everything that needs Kafka: a second one would only wait for the corpus.
pytestmark = pytest.mark.xdist_group("kafka")

COMPACTING = replace(
    SMALL_SEGMENTS, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01
)
NAME = "table-0"
KEYS = 40


@dataclass(slots=True)
class CompactedLog:
    """A log that we compacted: its records, the offsets of aborted ones, and what our consumer
    sees."""

    data: Path
    written: dict[int, Record] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    kept: list[Record] = field(default_factory=list)
    active_base_offset: int = 0

    @property
    def directory(self) -> Path:
        return self.data / NAME

    def latest(self) -> set[int]:
        """The offset of each key's last record that was not aborted."""
        visible = [r for r in self.written.values() if r.offset not in self.aborted]
        return set({record.key: record.offset for record in visible}.values())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CompactedLog:
    made = CompactedLog(tmp_path_factory.mktemp("table"))
    logs = OurLogs(made.data, COMPACTING)
    log = logs.create(NAME, UUID(int=77))
    _write(logs, log, made)
    assert f"compaction of {NAME}" in logs.run_upkeep()
    made.kept = read_records(log)
    made.active_base_offset = log.segments.active.base_offset
    logs.close()
    return made


@pytest.fixture(scope="module")
def dump(kafka_jars: KafkaJars, table: CompactedLog) -> Dump:
    return dump_files(kafka_jars, partition_files(table.directory))


def test_kafka_finds_nothing_wrong_with_our_compacted_log(
    kafka_jars: KafkaJars, table: CompactedLog, dump: Dump
) -> None:
    assert_dump_clean(dump, compacted=True)
    assert_dump_clean(check_indexes(kafka_jars, partition_files(table.directory)))


def test_kafka_shows_what_our_compaction_kept(table: CompactedLog, dump: Dump) -> None:
    shown = [record for record in dump.records(table.directory) if record.marker is None]
    assert [tuple(r[:4]) for r in shown] == [tuple(r[:4]) for r in table.kept]
    assert [r.header_keys for r in shown] == [tuple(k for k, _ in r.headers) for r in table.kept]


def test_cleaned_segments_keep_the_latest_record_of_each_key_only(table: CompactedLog) -> None:
    kept = {record.offset for record in table.kept}
    assert table.latest() <= kept
    assert all(record == table.written[record.offset] for record in table.kept)
    cleaned = {offset for offset in kept if offset < table.active_base_offset}
    assert len(cleaned) <= KEYS
    assert not cleaned & table.aborted


def test_kafka_reads_its_own_log_after_our_compaction(
    kafka_jars: KafkaJars, kafka_corpus: Corpus, tmp_path: Path
) -> None:
    data = kafka_corpus.killed.copy_to(tmp_path / "node")
    name = f"{COMPACTED}-0"
    logs = OurLogs(data.data, COMPACTING, only_topic=COMPACTED)
    log = logs.logs[name]
    log.advance_high_watermark(log.log_end_offset)
    _append(logs, log, list(make_records(200, seed=90, keys=KEYS)), Codec.ZSTD)
    before = read_records(log)
    assert f"compaction of {name}" in logs.run_upkeep()
    kept = read_records(log)
    logs.close()

    dump = dump_files(kafka_jars, partition_files(data.directory(name)))
    assert_dump_clean(dump, compacted=True)
    assert_dump_clean(check_indexes(kafka_jars, partition_files(data.directory(name))))
    shown = [r.offset for r in dump.records(data.directory(name)) if r.marker is None]
    assert shown == [record.offset for record in kept]
    assert len(kept) < len(before)
    assert {r.key: r.value for r in kept} == {r.key: r.value for r in before}


def _write(logs: OurLogs, log: SegmentedLog, made: CompactedLog) -> None:
    for number, codec in enumerate(Codec):
        fresh = list(make_records(120, seed=60 + number, keys=KEYS))
        made.written |= _append(logs, log, fresh, codec)
        for commit in (False, True):
            few = list(make_records(6, seed=70 + number, keys=KEYS))
            sent = _append(logs, log, few, codec, producer_id=int(commit), sequence=6 * number)
            made.written |= sent
            if not commit:
                made.aborted |= set(sent)
            _end(logs, log, producer_id=int(commit), commit=commit)


def _append(
    logs: OurLogs,
    log: SegmentedLog,
    fresh: list[NewRecord],
    codec: Codec,
    *,
    producer_id: int = -1,
    sequence: int = -1,
) -> dict[int, Record]:
    """Appends in batches of 10, or as one transactional batch; returns the records by offset."""
    written: dict[int, Record] = {}
    for start in range(0, len(fresh), 10):
        records = [
            Record(index, new.timestamp_ms or 0, new.key, new.value, new.headers)
            for index, new in enumerate(fresh[start : start + 10])
        ]
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            transactional=producer_id >= 0,
        )
        base = logs.append(log, batch, leader_epoch=max(0, log.latest_epoch)).base_offset
        written |= {base + r.offset: r._replace(offset=base + r.offset) for r in records}
    return written


def _end(logs: OurLogs, log: SegmentedLog, *, producer_id: int, commit: bool) -> None:
    marker = build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
    )
    logs.append(log, marker, leader_epoch=log.latest_epoch, origin=AppendOrigin.COORDINATOR)
