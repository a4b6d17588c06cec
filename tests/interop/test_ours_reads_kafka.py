"""Penstock's storage on the data directory of a real Kafka broker, stopped cleanly or killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.kafka_broker import KafkaBroker, KafkaClients, WrittenRecord
from tests.interop.kafka_corpus import (
    BROKER_PROPERTIES,
    COMPACTED,
    TRANSACTIONS,
    Corpus,
    KafkaData,
    WrittenPartition,
    make_records,
)
from tests.interop.kafka_dump import (
    Dump,
    assert_dump_clean,
    check_indexes,
    dump_files,
    partition_files,
)
from tests.interop.kafka_jars import KafkaJars
from tests.interop.our_logs import OurLogs, read_batches, read_records
from tests.profile import is_long

from penstock.model.ids import Offset, TimestampMs
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.leader_epoch_cache import EPOCH_FILE, decode_epochs
from penstock.storage.log import SegmentedLog
from penstock.storage.partition_metadata import encode_uuid
from penstock.storage.producer_snapshot import decode as decode_snapshot

# One worker runs everything that needs Kafka: a second one would only wait for the corpus.
pytestmark = pytest.mark.xdist_group("kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCopy:
    """A copy of Kafka's directory that Penstock has opened, and the untouched original."""

    original: KafkaData
    data: KafkaData
    logs: OurLogs
    kafkas: Dump  # Kafka's view of the original

    def partitions_and_logs(self) -> Iterator[tuple[WrittenPartition, SegmentedLog]]:
        for name, partition in self.data.partitions.items():
            yield partition, self.logs.logs[name]


@pytest.fixture(scope="module", params=["clean", "killed"])
def opened(
    request: pytest.FixtureRequest,
    kafka_jars: KafkaJars,
    kafka_corpus: Corpus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OpenedCopy]:
    original = kafka_corpus.clean if request.param == "clean" else kafka_corpus.killed
    data = original.copy_to(tmp_path_factory.mktemp("opened") / "node")
    logs = OurLogs(data.data)
    dump = dump_files(kafka_jars, _all_files(original))
    yield OpenedCopy(original=original, data=data, logs=logs, kafkas=dump)
    logs.close()


def test_recovery_truncates_nothing(opened: OpenedCopy) -> None:
    assert [text for text in opened.logs.reports if "cutting" in text] == []
    for name in opened.data.partitions:
        logs = {path.name: path.stat().st_size for path in _log_files(opened.data, name)}
        assert logs == {p.name: p.stat().st_size for p in _log_files(opened.original, name)}


def test_log_end_and_start_are_kafkas(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        assert log.log_end_offset == partition.log_end_offset
        assert log.log_start_offset == 0


def test_every_record_reads_as_it_was_written(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        if partition.topic != COMPACTED:
            assert [tuple(record) for record in read_records(log)] == [
                tuple(record) for record in partition.written
            ]


def test_what_kafkas_cleaner_kept_reads_as_it_was_written(opened: OpenedCopy) -> None:
    name = f"{COMPACTED}-0"
    written = {record.offset: tuple(record) for record in opened.data.partitions[name].written}
    read = read_records(opened.logs.logs[name])
    assert [tuple(record) for record in read] == [written[record.offset] for record in read]
    kept = [r for r in opened.kafkas.records(opened.original.directory(name)) if r.marker is None]
    assert [record.offset for record in read] == [record.offset for record in kept]


def test_every_offset_can_be_found(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        for record in partition.written[::17]:
            read = log.read(
                Offset(record.offset), below=log.log_end_offset, max_bytes=1, at_least_one=True
            )
            read.lease.release()
            assert read.end_offset > record.offset


def test_look_ups_by_time_agree_with_the_written_times(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        if partition.topic == COMPACTED:
            continue
        times = [record.timestamp_ms for record in partition.written]
        for timestamp_ms in (0, times[0], times[len(times) // 2], max(times)):
            timed = log.find_by_time(TimestampMs(timestamp_ms))
            first = next(r for r in _with_markers(partition, log) if r.timestamp_ms >= timestamp_ms)
            assert timed is not None
            assert (timed.offset, timed.timestamp_ms) == (first.offset, first.timestamp_ms)


def test_aborted_transactions_are_those_of_kafkas_index(opened: OpenedCopy) -> None:
    name = f"{TRANSACTIONS}-0"
    log = opened.logs.logs[name]
    ours = [tuple(entry) for entry in log.aborted(Offset(0), log.log_end_offset)]
    kafkas = opened.kafkas.aborted(opened.original.directory(name))
    assert ours == [tuple(entry) for entry in kafkas]
    assert ours


def test_last_stable_offset_is_where_an_open_transaction_begins(opened: OpenedCopy) -> None:
    partition = opened.data.partitions[f"{TRANSACTIONS}-0"]
    log = opened.logs.logs[f"{TRANSACTIONS}-0"]
    log.advance_high_watermark(log.log_end_offset)
    expected = min(partition.open_offsets, default=partition.log_end_offset)
    assert log.last_stable_offset == expected


def test_producers_are_those_of_kafkas_last_snapshot(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        name = partition.directory_name
        path = max(opened.original.directory(name).glob("*.snapshot"), default=None)
        if path is not None and int(path.stem) == log.log_end_offset:
            kafkas = decode_snapshot(path.read_bytes())
            assert sorted(log.producers.producers()) == sorted(kafkas), name


def test_epochs_and_topic_ids_are_kafkas(opened: OpenedCopy) -> None:
    for partition, log in opened.partitions_and_logs():
        directory = opened.original.directory(partition.directory_name)
        epochs = decode_epochs((directory / EPOCH_FILE).read_bytes(), EPOCH_FILE)
        # Like Kafka, recovery drops an epoch without records.
        assert log.epochs.entries == tuple(e for e in epochs if e.start_offset < log.log_end_offset)
        assert encode_uuid(log.topic_id) == partition.topic_id


@pytest.mark.parametrize("kind", ["clean", "killed"] if is_long() else ["killed"])
def test_kafka_continues_a_log_that_we_appended_to(
    kafka_jars: KafkaJars, kafka_corpus: Corpus, tmp_path: Path, kind: str
) -> None:
    original = kafka_corpus.clean if kind == "clean" else kafka_corpus.killed
    data = original.copy_to(tmp_path / "node")
    logs = OurLogs(data.data)
    expected = {name: _append_to(logs, logs.logs[name]) for name in data.partitions}
    ends = {name: logs.logs[name].log_end_offset for name in data.partitions}
    logs.close()

    assert_dump_clean(dump_files(kafka_jars, _all_files(data)), compacted=True)
    assert_dump_clean(check_indexes(kafka_jars, _all_files(data)))
    broker = KafkaBroker(kafka_jars, data.root, BROKER_PROPERTIES | {"log.cleaner.enable": "false"})
    with broker, KafkaClients(kafka_jars, broker.bootstrap, tmp_path / "third.log") as clients:
        for name, partition in data.partitions.items():
            consumed, end_offset = clients.consume(partition.topic, partition=partition.partition)
            assert consumed == expected[name], name
            assert end_offset == ends[name]


def _append_to(logs: OurLogs, log: SegmentedLog) -> list[WrittenRecord]:
    """Appends records with every codec; returns the whole log as a Java consumer reads it."""
    for number, codec in enumerate(Codec):
        new = list(make_records(40, seed=50 + number, keys=40))
        records = [
            Record(index, r.timestamp_ms or 0, r.key, r.value, r.headers)
            for index, r in enumerate(new)
        ]
        logs.append(log, build_batch(records, codec=codec), leader_epoch=log.latest_epoch)
    return [WrittenRecord(*record) for record in read_records(log)]


def _with_markers(partition: WrittenPartition, log: SegmentedLog) -> list[Record]:
    """Written records and the markers between them, because both have timestamps."""
    markers = [r for h, batch in read_batches(log) if h.is_control for r in iter_records(batch)]
    return sorted([*(Record(*record) for record in partition.written), *markers])


def _log_files(data: KafkaData, name: str) -> list[Path]:
    return sorted(data.directory(name).glob("*.log"))


def _all_files(data: KafkaData) -> list[Path]:
    return [path for name in data.partitions for path in partition_files(data.directory(name))]
