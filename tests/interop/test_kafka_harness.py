"""The harness itself: Kafka's own logs pass the checks, and damaged ones do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop import kafka_jars as jars_module
from tests.interop.kafka_corpus import (
    CODEC_TOPICS,
    COMPACTED,
    TRANSACTIONS,
    TWO_PARTITIONS,
    Corpus,
    KafkaData,
    WrittenPartition,
    copy_tree,
)
from tests.interop.kafka_dump import (
    Dump,
    assert_dump_clean,
    check_indexes,
    dump_files,
    partition_files,
)
from tests.interop.kafka_jars import KafkaJars, KafkaUnavailableError

# One worker runs everything that needs Kafka: a second one would only wait for the corpus.
pytestmark = pytest.mark.xdist_group("kafka")


@pytest.fixture(scope="session")
def clean_dump(kafka_jars: KafkaJars, kafka_corpus: Corpus) -> Dump:
    """The tool's output for the whole clean copy, from one run."""
    return dump_files(kafka_jars, _all_files(kafka_corpus.clean))


def test_kafkas_own_logs_dump_clean(clean_dump: Dump) -> None:
    assert_dump_clean(clean_dump, compacted=True)


def test_kafkas_own_indexes_pass_its_sanity_check_after_a_clean_shutdown(
    kafka_jars: KafkaJars, kafka_corpus: Corpus
) -> None:
    assert_dump_clean(check_indexes(kafka_jars, _all_files(kafka_corpus.clean)))


def test_only_the_compacted_log_has_gaps(kafka_jars: KafkaJars, kafka_corpus: Corpus) -> None:
    compacted = kafka_corpus.clean.directory(f"{COMPACTED}-0")
    dump = dump_files(kafka_jars, partition_files(compacted))
    assert_dump_clean(dump, compacted=True)
    with pytest.raises(AssertionError, match="is followed by"):
        assert_dump_clean(dump)


@pytest.mark.parametrize("topic", [*CODEC_TOPICS, TRANSACTIONS])
def test_dump_shows_the_records_that_the_writer_reported(
    clean_dump: Dump, kafka_corpus: Corpus, topic: str
) -> None:
    name = f"{topic}-0"
    dumped = clean_dump.records(kafka_corpus.clean.directory(name))
    shown = [tuple(record[:5]) for record in dumped if record.marker is None]
    assert shown == _expected(kafka_corpus.clean.partitions[name])


def test_every_log_has_at_least_four_segments(kafka_corpus: Corpus) -> None:
    for topic in (*CODEC_TOPICS, TRANSACTIONS):
        assert len(list(kafka_corpus.clean.directory(f"{topic}-0").glob("*.log"))) >= 4


def test_transaction_index_names_the_aborted_transactions(
    clean_dump: Dump, kafka_corpus: Corpus
) -> None:
    name = f"{TRANSACTIONS}-0"
    directory = kafka_corpus.clean.directory(name)
    batches = [b for b in clean_dump.batches(directory) if not b.control]
    inside = {
        offset
        for entry in clean_dump.aborted(directory)
        for batch in batches
        if batch.producer_id == entry.producer_id and batch.transactional
        for offset in range(batch.base_offset, batch.last_offset + 1)
        if entry.first_offset <= offset <= entry.last_offset
    }
    assert inside == kafka_corpus.clean.partitions[name].aborted_offsets


def test_kafkas_cleaner_has_kept_the_latest_value_of_each_key(
    clean_dump: Dump, kafka_corpus: Corpus
) -> None:
    name = f"{COMPACTED}-0"
    partition = kafka_corpus.clean.partitions[name]
    kept = {r.offset for r in clean_dump.records(kafka_corpus.clean.directory(name))}
    visible = [r for r in partition.written if r.offset not in partition.aborted_offsets]
    latest = {record.key: record.offset for record in visible}
    assert set(latest.values()) <= kept
    assert len(kept) < len(partition.written) / 2
    assert not kept & partition.aborted_offsets


def test_a_killed_broker_leaves_preallocated_indexes(
    kafka_jars: KafkaJars, kafka_corpus: Corpus
) -> None:
    # This log never rolled, so its index has an entry, from the clean shutdown before, and then
    # zeros. Kafka's check accepts an index that is all zeros.
    directory = kafka_corpus.killed.directory(f"{TWO_PARTITIONS}-0")
    assert max(path.stat().st_size for path in directory.glob("*.index")) == 10 * 1024 * 1024
    with pytest.raises(AssertionError, match="CorruptIndexException"):
        assert_dump_clean(check_indexes(kafka_jars, partition_files(directory)))


def test_a_restart_starts_a_new_leader_epoch(kafka_corpus: Corpus) -> None:
    text = kafka_corpus.killed.directory("codec-none-0") / "leader-epoch-checkpoint"
    epochs = [line.split() for line in text.read_text().splitlines()[2:]]
    assert [int(start) for _, start in epochs] == [0, 600]


def _flip_value_byte(directory: Path) -> Path:
    return _change(_second(directory, ".log"), at=200)


def _cut_log(directory: Path) -> Path:
    log = _second(directory, ".log")
    log.write_bytes(log.read_bytes()[:-10])
    return log


def _lose_a_batch(directory: Path) -> Path:
    log = _second(directory, ".log")
    data = log.read_bytes()
    first = 12 + int.from_bytes(data[8:12], "big")
    second = 12 + int.from_bytes(data[first + 8 : first + 12], "big")
    log.write_bytes(data[:first] + data[first + second :])
    return log


def _move_index_entry(directory: Path) -> Path:
    return _change(_second(directory, ".index"), at=3)


def _move_time(directory: Path) -> Path:
    return _change(_second(directory, ".timeindex"), at=7)


def _move_timed_offset(directory: Path) -> Path:
    return _change(_second(directory, ".timeindex"), at=11)


def _break_snapshot(directory: Path) -> Path:
    return _change(_second(directory, ".snapshot"), at=10)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_flip_value_byte, "isvalid: false|Exception"),
        (_cut_log, "invalid bytes at the end"),
        (_lose_a_batch, r"\d is followed by \d"),
        (_move_index_entry, "Mismatches in"),
        (_move_time, "Found timestamp mismatch"),
        (_move_timed_offset, "indexed offsets are not found"),
        (_break_snapshot, "corrupt"),
    ],
)
def test_checker_rejects_a_damaged_file(
    kafka_jars: KafkaJars,
    kafka_corpus: Corpus,
    tmp_path: Path,
    damage: Callable[[Path], Path],
    complaint: str,
) -> None:
    directory = tmp_path / "codec-lz4-0"
    copy_tree(kafka_corpus.clean.directory("codec-lz4-0"), directory)
    damaged = damage(directory)
    with pytest.raises(AssertionError, match=complaint):
        assert_dump_clean(dump_files(kafka_jars, [damaged]))


def test_the_error_without_java_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaUnavailableError, match=r"`java` is not on the path; install a JDK"):
        jars_module.resolve_kafka_jars(lambda _: None, cache_root=tmp_path / "cache")


def test_a_failed_maven_run_leaves_no_incomplete_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("java", "javac", "mvn"):
        script = tmp_path / program
        script.write_text("#!/bin/sh\necho '[ERROR] no route to the repository'\nexit 1\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(KafkaUnavailableError, match=r"Maven did not answer: .*no route"):
        jars_module.resolve_kafka_jars(lambda _: None, cache_root=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("jars-*"))


def _all_files(data: KafkaData) -> list[Path]:
    return [path for name in data.partitions for path in partition_files(data.directory(name))]


def _expected(partition: WrittenPartition) -> list[tuple[object, ...]]:
    return [
        (r.offset, r.timestamp_ms, r.key, r.value, tuple(name for name, _ in r.headers))
        for r in partition.written
    ]


def _second(directory: Path, suffix: str) -> Path:
    return sorted(directory.glob(f"*{suffix}"))[1]


def _change(path: Path, *, at: int) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    return path
