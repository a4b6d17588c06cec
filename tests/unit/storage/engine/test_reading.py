"""Reads: ranges, limits and leases."""

import os
import random

import pytest
from tests.profile import scaled
from tests.unit.storage.engine.cases import (
    NOW_MS,
    Case,
    batch_of,
)

from penstock.model.ids import Offset
from penstock.protocol.batch import read_header
from penstock.storage.errors import (
    OffsetOutOfRange,
)


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_a_read_inside_a_batch_returns_the_whole_batch(case: Case, offset: int) -> None:
    case.fill(3, 3, 3)
    assert case.read(offset, max_bytes=1) == [(3, 5)]


def test_a_read_in_a_gap_starts_with_the_next_batch(case: Case) -> None:
    case.follow(0, 1)
    case.follow(9, 1)
    assert case.read(4) == [(9, 9)]


def test_reads_end_below_the_bound_with_a_whole_batch(case: Case) -> None:
    case.fill(2, 2, 2)
    assert case.read(0, below=5) == [(0, 1), (2, 3)]
    assert case.read(0, below=4) == [(0, 1), (2, 3)]
    assert case.read(0, below=1) == []
    assert case.read(4, below=4) == []


def test_reads_return_at_most_max_bytes(case: Case) -> None:
    case.fill(1, 1, 1)
    size = len(batch_of(1))
    assert case.read(0, max_bytes=2 * size) == [(0, 0), (1, 1)]
    assert case.read(0, max_bytes=2 * size - 1) == [(0, 0)]
    assert case.read(0, max_bytes=size - 1, at_least_one=False) == []
    assert case.read(0, max_bytes=0) == [(0, 0)]


@pytest.mark.parametrize("max_bytes", [0, 100, 1 << 20])
def test_an_intact_log_has_no_damage_wherever_the_check_starts(case: Case, max_bytes: int) -> None:
    """Also inside a batch, in a gap left by compaction, and at the log end."""
    case.follow(0, 3)
    case.follow(9, 1)
    case.follow(12, 2)
    for offset in range(15):
        assert case.log.find_damage(Offset(offset), max_bytes) is None
    with pytest.raises(OffsetOutOfRange):
        case.log.find_damage(Offset(15), max_bytes)


def test_consecutive_reads_return_all_batches(case: Case) -> None:
    counts = [1, 3, 2, 4, 1, 1, 2, 5]
    case.fill(*counts)
    ends = [sum(counts[: index + 1]) for index in range(len(counts))]
    assert case.read_all() == [(e - c, e - 1) for c, e in zip(counts, ends, strict=True)]


@pytest.mark.parametrize("seed", range(scaled(test=8, verify=100, release=1000)))
def test_a_reader_continues_while_the_log_changes(case: Case, seed: int) -> None:
    """In between, the log is truncated, rewritten, rolled, restarted, and read by others."""
    source = random.Random(seed)
    stored: list[tuple[int, int, int]] = []  # first and last offset, and size, of each batch
    start = 0
    for _ in range(150):
        match source.randrange(8):
            case 0:
                case.log.truncate_to(Offset(source.randint(0, case.log.log_end_offset)), NOW_MS)
                stored = [batch for batch in stored if batch[1] < case.log.log_end_offset]
            case 1 if source.random() < 0.2:
                case.log.restart_at(Offset(source.randrange(50)), NOW_MS)
                stored.clear()
            case 2 | 3 | 4 | 5:
                batch = batch_of(source.randint(1, 6))
                appended = case.append(batch)
                stored.append((appended.base_offset, appended.end_offset - 1, len(batch)))
            case _:
                pass
        end = int(case.log.log_end_offset)
        if source.random() < 0.1:
            start = source.randint(case.log.log_start_offset, end)
        if not case.log.log_start_offset <= start <= end:
            continue  # until the log has been written up to here again
        below, limit = end - source.choice((0, 0, 0, 1, 3)), source.choice((100, 300, 10**6))
        batches, next_start = case.read_once(start, below, limit, True)
        wanted = [batch for batch in stored if batch[1] >= start]
        assert batches == [batch[:2] for batch in wanted[: len(batches)]]
        assert bool(batches) == bool(wanted and wanted[0][1] < below)
        assert all(last < below for _, last in batches)
        assert len(batches) <= 1 or sum(batch[2] for batch in wanted[: len(batches)]) <= limit
        start = next_start


def test_reads_outside_the_log_report_its_range(case: Case) -> None:
    case.fill(4)
    case.advance(4)
    case.log.delete_before(Offset(2))
    assert case.read(4) == []
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRange) as caught:
            case.read(offset)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 4)


def test_slices_stay_readable_while_the_log_changes(case: Case) -> None:
    case.fill(2)
    read = case.log.read(Offset(0), below=Offset(9), max_bytes=10**6, at_least_one=True)
    case.fill(*[3] * 10)
    case.advance(20)
    case.log.delete_before(Offset(20))
    [(fd, position, length)] = read.slices
    assert read_header(os.pread(fd, length, position)).last_offset == 1
    read.lease.release()
