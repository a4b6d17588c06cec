"""Conversions between the storage engines change the layout only, wherever they are cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from tests.profile import scaled
from tests.unit.storage.sample_logs import NOW_MS, Writer, fill, open_engine

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import replace_file
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.conversion import (
    COMMIT_LOG,
    SEGMENTED,
    Conversion,
    ConversionRefused,
    Converted,
)
from penstock.storage.engine import Engine, PartitionLog
from penstock.storage.errors import DirectoryLocked
from penstock.storage.log_directory import LocalLogDirectory
from penstock.storage.partition_metadata import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SeededChoice, SimulatedCrash, SimulatedDisk

PROPERTIES = MetaProperties(
    node_id=3, cluster_id="a cluster", directory_id=UUID(int=5), incarnation=12
)
CONFIG = LogConfig(retention_ms=-1)
Content = dict[TopicPartition, dict[str, Any]]


@cache
def written() -> SimulatedDisk:
    """Several partitions of the segmented engine, closed cleanly."""
    disk = SimulatedDisk("/d")
    engine = open_engine("/d", disk=disk)
    fill(Writer(engine, "transactions-0"))
    deleted = Writer(engine, "deleted-1")
    for _ in range(4):
        deleted.transactional(4)
        deleted.end(4, commit=True)
        deleted.records()
    for _ in range(3):
        deleted.records(count=5)
    deleted.log.delete_before(Offset(deleted.log.log_end_offset - 8))  # within a batch
    Writer(engine, "empty-0")
    moved = Writer(engine, "moved-2")
    moved.log.restart_at(Offset(1000), NOW_MS)
    moved.epoch = 4
    moved.records()
    moved.log.begin_epoch(LeaderEpoch(9))  # without a batch
    engine.close()
    write_meta_properties(disk, "/d", PROPERTIES)
    replace_file(disk, "/d/of-another-program", b"stays")
    return disk


def convert(disk: SimulatedDisk, engine: str, **arguments: Any) -> Converted:
    return Conversion(disk, "/d", engine, now_ms=NOW_MS, **arguments).run()


def open_as(disk: SimulatedDisk, kind: str) -> tuple[Engine, dict[TopicPartition, PartitionLog]]:
    make = SegmentedEngine if kind == SEGMENTED else CommitLogEngine
    engine = make(StorageConfig(log_dirs=("/d",)), config_of=lambda topic: CONFIG, disk=disk)
    logs = dict(engine.recover(lambda *, done, total: None, NOW_MS))
    assert not engine.missing()
    assert not engine.short()
    return engine, logs


def engine_of(disk: SimulatedDisk) -> str:
    stored = read_meta_properties(disk, "/d")
    assert stored is not None
    return stored.engine or SEGMENTED


def content_of(disk: SimulatedDisk) -> Content:
    """All that a broker would serve, by the engine that meta.properties names."""
    engine, logs = open_as(disk.copy(), engine_of(disk))
    content = {tp: describe(log, engine) for tp, log in logs.items()}
    engine.abandon()
    return content


def describe(log: PartitionLog, engine: Engine) -> dict[str, Any]:
    batches = read_all(log, engine)
    epochs = log.epochs.entries  # type: ignore[attr-defined]
    aborted = log.aborted(Offset(0), log.log_end_offset)
    return {
        "topic id": log.topic_id,
        "offsets": (log.log_start_offset, log.high_watermark, log.log_end_offset),
        "stable": log.last_stable_offset,
        "batches": batches,
        # After a crash the segmented engine drops an epoch that has no batch.
        "epochs": [epoch for epoch in epochs if epoch.start_offset < log.log_end_offset],
        "producers": {entry.producer_id: entry for entry in log.producers.producers()},
        "aborted": sorted((entry.producer_id, entry.last_offset) for entry in aborted),
    }


def read_all(log: PartitionLog, engine: Engine) -> list[bytes]:
    disk = engine._disk  # type: ignore[attr-defined]
    batches: list[bytes] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        read = log.read(position, below=log.log_end_offset, max_bytes=900, at_least_one=True)
        content = b"".join(disk.pread(s.fd, s.length, s.position) for s in read.slices)
        batches += [content[at : at + header.size] for at, header in iter_headers(content)]
        read.lease.release()
        position = read.end_offset
    return batches


def test_a_round_trip_keeps_every_byte_and_every_state() -> None:
    disk = written().copy()
    before = content_of(disk)
    assert sum(len(log["batches"]) for log in before.values()) > 60
    assert any(log["aborted"] for log in before.values())
    converted = convert(disk, COMMIT_LOG)
    assert converted.partitions == 4
    assert read_meta_properties(disk, "/d") == MetaProperties(
        node_id=3,
        cluster_id="a cluster",
        directory_id=UUID(int=5),
        incarnation=12,
        engine=COMMIT_LOG,
    )
    assert content_of(disk) == before
    assert names(disk) == {
        ".lock",
        "commitlog",
        "commitlog-checkpoint",
        "consumequeue",
        "meta.properties",
        "of-another-program",
    }
    convert(disk, SEGMENTED)
    assert content_of(disk) == before
    assert read_meta_properties(disk, "/d") == PROPERTIES
    assert not names(disk) & {"commitlog", "consumequeue", "commitlog-checkpoint", ".conversion"}


def names(disk: SimulatedDisk) -> set[str]:
    return {entry.name for entry in disk.list("/d")}


def test_a_second_conversion_to_the_same_engine_changes_nothing() -> None:
    disk = written().copy()
    before = disk.files()
    assert convert(disk, SEGMENTED).partitions == 0
    assert disk.files() == before


def test_a_producer_without_batches_is_kept_by_a_replay_of_everything_too() -> None:
    """Its snapshot is the only place that has it."""
    disk = written().copy()
    tp = TopicPartition("deleted", 1)
    before = content_of(disk)[tp]["producers"]
    assert 4 in before
    convert(disk, COMMIT_LOG)
    disk.remove("/d/commitlog-checkpoint")
    engine, logs = open_as(disk, COMMIT_LOG)
    after = {entry.producer_id: entry for entry in logs[tp].producers.producers()}
    assert after == before
    engine.close()


def test_a_running_broker_keeps_its_directory() -> None:
    disk = written().copy()
    lock = LocalLogDirectory(disk, "/d")
    lock.lock()
    with pytest.raises(DirectoryLocked):
        convert(disk, COMMIT_LOG)
    lock.close(clean=False)


def test_a_damaged_batch_is_refused_before_anything_is_written() -> None:
    disk = written().copy()
    before = content_of(disk)
    path = "/d/transactions-0/00000000000000000000.log"
    disk.flip_bit(path, 8 * 100)
    with pytest.raises(ConversionRefused, match="transactions-0 at offset 0 is damaged"):
        convert(disk, COMMIT_LOG)
    disk.flip_bit(path, 8 * 100)
    assert engine_of(disk) == SEGMENTED
    assert content_of(disk) == before
    assert "commitlog" not in names(disk)


def test_a_directory_that_lacks_a_partition_is_refused() -> None:
    disk = written().copy()
    for entry in disk.list("/d/moved-2"):
        disk.remove(f"/d/moved-2/{entry.name}")
    with pytest.raises(ConversionRefused, match=r"lost \(moved-2\)"):
        convert(disk, COMMIT_LOG)


@pytest.mark.parametrize("engine", [COMMIT_LOG, SEGMENTED])
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_a_conversion_that_is_cut_anywhere_loses_nothing(
    engine: str, is_power_cut: bool, record_figure: Callable[[str, int], None]
) -> None:
    """One engine or the other has everything, and a second run finishes the conversion."""
    start = written().copy()
    if engine == SEGMENTED:
        convert(start, COMMIT_LOG)
        start = start.copy()
    before = content_of(start)
    whole = start.copy()
    convert(whole, engine)
    points = len(whole.trace)
    step = scaled(test=max(1, points // 25), verify=1, release=1)
    for point in range(0, points, step):
        disk = start.copy()
        disk.crash_before(point)
        with pytest.raises(SimulatedCrash):
            convert(disk, engine)
        disk = disk.survivor_of_power_cut(SeededChoice(point)) if is_power_cut else disk.copy()
        assert content_of(disk) == before, f"at call {point}"
        convert(disk, engine)
        assert engine_of(disk) == engine
        assert content_of(disk) == before, f"at call {point}"
        assert names(disk) == names(whole)
    record_figure("conversions: points of a crash", points // step)
