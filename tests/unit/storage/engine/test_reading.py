"""Which batches a read gives."""

import os

import pytest
from tests.unit.storage.engine.cases import (
    Case,
    batch_of,
)

from penstock.model.ids import Offset
from penstock.protocol.batch import read_header
from penstock.storage.errors import (
    OffsetOutOfRange,
)


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_a_read_inside_a_batch_gives_the_whole_batch(case: Case, offset: int) -> None:
    case.fill(3, 3, 3)
    assert case.read(offset, max_bytes=1) == [(3, 5)]


def test_a_read_in_a_gap_begins_with_the_next_batch(case: Case) -> None:
    case.follow(0, 1)
    case.follow(9, 1)
    assert case.read(4) == [(9, 9)]


def test_reads_end_below_the_bound_with_a_whole_batch(case: Case) -> None:
    case.fill(2, 2, 2)
    assert case.read(0, below=5) == [(0, 1), (2, 3)]
    assert case.read(0, below=4) == [(0, 1), (2, 3)]
    assert case.read(0, below=1) == []
    assert case.read(4, below=4) == []


def test_reads_take_no_more_bytes_than_asked_for(case: Case) -> None:
    case.fill(1, 1, 1)
    size = len(batch_of(1))
    assert case.read(0, max_bytes=2 * size) == [(0, 0), (1, 1)]
    assert case.read(0, max_bytes=2 * size - 1) == [(0, 0)]
    assert case.read(0, max_bytes=size - 1, at_least_one=False) == []
    assert case.read(0, max_bytes=0) == [(0, 0)]


def test_reads_lead_from_one_to_the_next_through_all_batches(case: Case) -> None:
    counts = [1, 3, 2, 4, 1, 1, 2, 5]
    case.fill(*counts)
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    assert case.read_all() == [(e - c, e - 1) for c, e in zip(counts, ends, strict=True)]


def test_reads_outside_of_the_log_say_where_it_is(case: Case) -> None:
    case.fill(4)
    case.advance(4)
    case.log.delete_before(Offset(2))
    assert case.read(4) == []
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRange) as caught:
            case.read(offset)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 4)


def test_what_was_read_stays_readable_while_the_log_goes_on(case: Case) -> None:
    case.fill(2)
    read = case.log.read(Offset(0), below=Offset(9), max_bytes=10**6, at_least_one=True)
    case.fill(*[3] * 10)
    case.advance(20)
    case.log.delete_before(Offset(20))
    [(fd, position, length)] = read.slices
    assert read_header(os.pread(fd, length, position)).last_offset == 1
    read.lease.release()
