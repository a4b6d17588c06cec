"""Penstock's readers of single file kinds, on files that a real Kafka broker wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.interop.kafka_broker import CLUSTER_ID
from tests.interop.kafka_corpus import (
    CODEC_TOPICS,
    COMPACTED,
    TRANSACTIONS,
    Corpus,
    KafkaData,
)
from tests.interop.kafka_dump import Dump, dump_files, partition_files
from tests.interop.kafka_jars import KafkaJars
from tests.profile import is_long

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import BatchHeader, check_header, is_crc_valid, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.control import EndMarker, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
)
from penstock.storage.leader_epoch_cache import EPOCH_FILE, decode_epochs, encode_epochs
from penstock.storage.partition_metadata import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_topic_id,
    encode_clean_shutdown,
    encode_topic_id,
    encode_uuid,
)
from penstock.storage.producer_snapshot import decode as decode_snapshot
from penstock.storage.producer_snapshot import encode as encode_snapshot
from penstock.storage.transaction_index import decode_entries, encode_entry

# One worker runs everything that needs Kafka: a second one would only wait for the corpus.
pytestmark = pytest.mark.xdist_group("kafka")


class Stopped(NamedTuple):
    """A data directory and Kafka's own view of all its files."""

    data: KafkaData
    dump: Dump


@pytest.fixture(scope="module", params=["clean", "killed"] if is_long() else ["killed"])
def stopped(request: pytest.FixtureRequest, kafka_jars: KafkaJars, kafka_corpus: Corpus) -> Stopped:
    data = kafka_corpus.clean if request.param == "clean" else kafka_corpus.killed
    files = [path for name in data.partitions for path in partition_files(data.directory(name))]
    return Stopped(data, dump_files(kafka_jars, files))


def test_every_record_reads_as_it_was_written(stopped: Stopped) -> None:
    for name, partition in stopped.data.partitions.items():
        read = [
            tuple(record)
            for header, batch in _batches(stopped.data.directory(name))
            if not header.is_control
            for record in iter_records(batch)
        ]
        written = [tuple(record) for record in partition.written]
        if partition.topic == COMPACTED:
            assert set(read) < set(written)
            written = read
        assert read == written, name


def test_compacted_records_are_those_in_kafkas_dump(stopped: Stopped) -> None:
    directory = stopped.data.directory(f"{COMPACTED}-0")
    batches = list(_batches(directory))
    ours = [record.offset for _, batch in batches for record in iter_records(batch)]
    assert ours == [record.offset for record in stopped.dump.records(directory)]
    assert any(header.has_delete_horizon for header, _ in batches)


def test_batch_headers_read_as_kafka_prints_them(stopped: Stopped) -> None:
    for name in stopped.data.partitions:
        directory = stopped.data.directory(name)
        ours = [
            (
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.leader_epoch,
                header.is_transactional,
                header.is_control,
                Codec(header.codec).name.lower(),
            )
            for header, _ in _batches(directory)
        ]
        assert ours == [tuple(batch) for batch in stopped.dump.batches(directory)], name


def test_uncompressed_batches_are_rebuilt_byte_for_byte(stopped: Stopped) -> None:
    rebuilt = 0
    for name in stopped.data.partitions:
        for header, batch in _batches(stopped.data.directory(name)):
            # LogAppendTime replaces the timestamps, which the deltas of the client's batch still
            # show.
            if header.codec == Codec.NONE and header.record_count and not header.is_append_time:
                assert _rebuild(header, list(iter_records(batch))) == batch
                rebuilt += 1
    assert rebuilt > 100


def test_end_markers_read_as_kafka_prints_them(stopped: Stopped) -> None:
    directory = stopped.data.directory(f"{TRANSACTIONS}-0")
    markers = [read_end_marker(batch) for header, batch in _batches(directory) if header.is_control]
    expected = [r.marker for r in stopped.dump.records(directory) if r.marker is not None]
    assert [_marker_name(marker) for marker in markers] == expected
    assert set(expected) == {"COMMIT", "ABORT"}


def test_transaction_indexes_read_and_write_as_kafkas(stopped: Stopped) -> None:
    directory = stopped.data.directory(f"{TRANSACTIONS}-0")
    files = sorted(directory.glob("*.txnindex"))
    entries = [entry for path in files for entry in decode_entries(path.read_bytes())]
    assert [tuple(e) for e in entries] == [tuple(e) for e in stopped.dump.aborted(directory)]
    assert b"".join(map(encode_entry, entries)) == b"".join(path.read_bytes() for path in files)
    assert len(entries) >= 6


def test_producer_snapshots_read_and_write_as_kafkas(stopped: Stopped) -> None:
    producers = 0
    for name in stopped.data.partitions:
        for path in stopped.data.directory(name).glob("*.snapshot"):
            ours = decode_snapshot(path.read_bytes())
            kafkas = stopped.dump.producers(path)
            assert encode_snapshot(ours) == path.read_bytes()
            assert [
                (e.producer_id, e.producer_epoch, e.coordinator_epoch, e.current_txn_first_offset)
                for e in ours
            ] == [tuple(p[:4]) for p in kafkas]
            assert [(e.last_sequence, e.last_offset) for e in ours] == [
                (-1, -1) if p.last_offset is None else (p.last_sequence, p.last_offset)
                for p in kafkas
            ]
            producers += len(ours)
    assert producers > 10


def test_topic_ids_epochs_and_their_files_read_and_write_as_kafkas(stopped: Stopped) -> None:
    for name, partition in stopped.data.partitions.items():
        directory = stopped.data.directory(name)
        metadata = (directory / PARTITION_METADATA_FILE).read_bytes()
        topic_id = decode_topic_id(metadata, "")
        assert encode_uuid(topic_id) == partition.topic_id
        assert encode_topic_id(topic_id) == metadata
        checkpoint = (directory / EPOCH_FILE).read_bytes()
        epochs = decode_epochs(checkpoint, "")
        assert encode_epochs(epochs) == checkpoint
        used = {batch.leader_epoch for batch in stopped.dump.batches(directory)}
        assert {entry.epoch for entry in epochs} >= used


@pytest.mark.parametrize(
    "name", [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE]
)
def test_offset_checkpoints_read_and_write_as_kafkas(stopped: Stopped, name: str) -> None:
    content = (stopped.data.data / name).read_bytes()
    offsets = decode_offsets(content, name)
    if content:
        assert encode_offsets(offsets) == content


def test_a_clean_shutdown_leaves_end_offsets_marker_and_meta_properties(
    kafka_corpus: Corpus,
) -> None:
    clean = kafka_corpus.clean
    recovery = decode_offsets((clean.data / RECOVERY_POINT_FILE).read_bytes(), "")
    for partition in clean.partitions.values():
        tp = TopicPartition(partition.topic, partition.partition)
        assert recovery[tp] == partition.log_end_offset
    marker = (clean.data / CLEAN_SHUTDOWN_FILE).read_bytes()
    assert encode_clean_shutdown(decode_clean_shutdown(marker).broker_epoch) == marker
    assert not (kafka_corpus.killed.data / CLEAN_SHUTDOWN_FILE).exists()
    stamp = decode_meta_properties((clean.data / META_PROPERTIES_FILE).read_bytes(), "")
    assert (stamp.version, stamp.node_id, stamp.cluster_id) == (1, 1, CLUSTER_ID)


def test_kafka_reads_batches_that_our_codecs_compressed(
    kafka_jars: KafkaJars, kafka_corpus: Corpus, tmp_path: Path
) -> None:
    """Recompresses Kafka's records with our codecs: its tool must show the same content."""
    source = kafka_corpus.clean.partitions[CODEC_TOPICS[0] + "-0"].written
    records = [Record(*record) for record in source]
    for codec in Codec:
        (tmp_path / codec.name).mkdir()
        batches = [
            build_batch(records[start : start + 50], base_offset=start, codec=codec, leader_epoch=3)
            for start in range(0, len(records), 50)
        ]
        (tmp_path / codec.name / f"{0:020d}.log").write_bytes(b"".join(batches))
    dump = dump_files(kafka_jars, [tmp_path / c.name / f"{0:020d}.log" for c in Codec])
    for codec in Codec:
        shown = dump.records(tmp_path / codec.name)
        assert [tuple(record[:4]) for record in shown] == [tuple(r[:4]) for r in records]
        assert {b.codec for b in dump.batches(tmp_path / codec.name)} == {codec.name.lower()}


def _batches(directory: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        end = 0
        for position, header in iter_headers(content):
            batch = content[position : position + header.size]
            check_header(header, len(batch))
            assert is_crc_valid(content, position, header.size)
            yield header, batch
            end = position + header.size
        assert end == len(content), f"{path} has {len(content) - end} bytes behind its batches"


def _rebuild(header: BatchHeader, records: list[Record]) -> bytes:
    return bytes(
        build_batch(
            records,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            last_offset_delta=header.last_offset_delta,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        )
    )


def _marker_name(marker: EndMarker | None) -> str | None:
    return None if marker is None else "COMMIT" if marker.commit else "ABORT"
