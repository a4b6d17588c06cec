"""Flipped bits and cut files of a commit log: no start fails, and no wrong batch looks right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from tests.profile import scaled
from tests.unit.storage.commit_log.shared_log import SharedLog
from tests.unit.storage.several_logs import FIRST, SECOND

from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import CorruptBatch, is_crc_valid, iter_headers
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.errors import CorruptRecords
from penstock.testing.simulated_disk import SimulatedDisk

FLIPS = scaled(test=300, verify=6_000, release=40_000)
CUTS = scaled(test=150, verify=1_500, release=10_000)
OUTSIDE_CRC = 17  # base offset, length, epoch and magic
Batches = dict[TopicPartition, list[bytes]]


@cache
def written(is_clean: bool) -> tuple[SimulatedDisk, Batches, frozenset[bytes]]:
    """Two partitions in several files, checkpointed in between; with all batches ever appended,
    because damage to the frame that has deleted them may bring them back."""
    shared = SharedLog()
    logs = [shared.create(FIRST), shared.create(SECOND)]
    for number in range(12):
        for log in logs:
            shared.append(log, 2, key=b"k%d" % number)
        if number in (4, 8):
            shared.flush(logs[0])
            shared.run_jobs("high watermarks", "checkpoint")
    ever = frozenset(batch[OUTSIDE_CRC:] for log in logs for batch in batches_of(shared, log))
    logs[0].delete_before(Offset(4))
    logs[1].truncate_to(Offset(44), shared.now_ms)
    batches = {log.tp: list(batches_of(shared, log)) for log in logs}
    if is_clean:
        shared.engine.close()
    else:
        shared.flush(logs[0])
        shared.engine.abandon()
    return shared.disk, batches, ever


def batches_of(shared: SharedLog, log: CommitLogPartition) -> list[bytes]:
    """Up to the first damage that a reader would notice."""
    batches: list[bytes] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        try:
            read = log.read(position, below=log.log_end_offset, max_bytes=1, at_least_one=True)
            content = b"".join(shared.disk.pread(s.fd, s.length, s.position) for s in read.slices)
            read.lease.release()
            [(_, header)] = iter_headers(content)
        except (CorruptRecords, CorruptBatch, ValueError):
            break
        if header.size != len(content) or not is_crc_valid(content, 0, len(content)):
            break
        batches.append(content)
        position = read.end_offset
    return batches


def check(disk: SimulatedDisk, expected: Batches, ever: frozenset[bytes]) -> int:
    """The number of batches that are lost."""
    shared = SharedLog(disk)
    lost = 0
    for tp, before in expected.items():
        log = shared.logs.get(tp)
        after = [] if log is None else batches_of(shared, shared.own(log))
        if log is None:
            assert tp in shared.engine.missing() or shared.reports
        assert all(batch[OUTSIDE_CRC:] in ever for batch in after), shared.reports
        lost += len(set(before) - set(after))
    assert not shared.engine.statistics().failed_directories
    shared.engine.close()
    return lost


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_a_flipped_bit_is_noticed_or_harmless(
    is_clean: bool, record_figure: Callable[[str, int], None]
) -> None:
    disk, expected, ever = written(is_clean)
    source = Random(5 + is_clean)
    files = [path for path, content in disk.files().items() if content]
    harmless = 0
    for _ in range(FLIPS):
        damaged = disk.copy()
        path = source.choice(files)
        damaged.flip_bit(path, source.randrange(8 * len(disk.files()[path])))
        harmless += not check(damaged, expected, ever)
    assert harmless
    record_figure("commit log: flipped bits", FLIPS)
    record_figure("commit log: flipped bits that lost nothing", harmless)


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_a_cut_or_removed_file_loses_no_more_than_its_batches(
    is_clean: bool, record_figure: Callable[[str, int], None]
) -> None:
    disk, expected, ever = written(is_clean)
    source = Random(9 + is_clean)
    files = [path for path, content in disk.files().items() if content]
    for number in range(CUTS):
        damaged = disk.copy()
        path = source.choice(files)
        if number % 5:
            damaged.cut(path, source.randrange(len(disk.files()[path])))
        else:
            damaged.remove(path)
        lost = check(damaged, expected, ever)
        if "/commitlog/" not in path:
            assert not lost, path
    record_figure("commit log: cut files", CUTS)


def test_damage_below_the_recovery_point_costs_one_partition_only() -> None:
    """Also when everything is replayed, as without a checkpoint."""
    disk, expected, _ = written(is_clean=True)
    damaged = disk.copy()
    victim = expected[FIRST][5]
    [path] = [path for path, content in disk.files().items() if victim in content]
    damaged.flip_bit(path, 8 * (disk.files()[path].index(victim) + 70))
    damaged.remove("/d/commitlog-checkpoint")
    shared = SharedLog(damaged)
    assert batches_of(shared, shared.own(shared.logs[SECOND])) == expected[SECOND]
    assert batches_of(shared, shared.own(shared.logs[FIRST])) == expected[FIRST][:5]
    assert any("ends at" in report for report in shared.reports)
