"""Producers and transactions of a log."""

from tests.unit.storage.engine.cases import Case, of_producer

from penstock.model.ids import Offset
from penstock.storage.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    UnknownProducer,
)


def test_a_duplicate_batch_gets_its_first_offsets(case: Case) -> None:
    case.fill(2)
    case.append(of_producer(0, 3))
    case.append(of_producer(3))
    assert case.append(of_producer(0, 3)) == (2, 5, -1, True)
    assert case.log.log_end_offset == 6


def test_the_last_five_batches_are_duplicates_with_offsets_and_older_ones_without(
    case: Case,
) -> None:
    for sequence in range(7):
        case.append(of_producer(sequence))
    for sequence in range(2, 7):
        assert case.append(of_producer(sequence)).base_offset == sequence
    assert isinstance(case.try_append(of_producer(1)), DuplicateSequence)


def test_sequences_start_at_zero_without_gaps(case: Case) -> None:
    assert isinstance(case.try_append(of_producer(1)), UnknownProducer)
    case.append(of_producer(0))
    assert isinstance(case.try_append(of_producer(2)), OutOfOrderSequence)
    assert case.log.log_end_offset == 1


def test_a_rejected_batch_does_not_change_the_producer_state(case: Case) -> None:
    case.append(of_producer(0))
    before = case.log.producers.find(7)
    case.try_append(of_producer(9))
    case.try_append(of_producer(1, 200))
    assert case.log.producers.find(7) == before
    case.append(of_producer(1))


def test_a_newer_epoch_fences_older_instances_of_the_producer(case: Case) -> None:
    case.append(of_producer(0, producer_epoch=1))
    assert isinstance(case.try_append(of_producer(1, producer_epoch=0)), InvalidProducerEpoch)
    case.append(of_producer(0, producer_epoch=2))


def test_truncation_resets_producers_to_the_remaining_log(case: Case) -> None:
    case.append(of_producer(0))
    case.append(of_producer(1))
    case.append(of_producer(0, producer_id=8))
    case.truncate(1)
    assert case.log.producers.find(8) is None
    assert isinstance(case.try_append(of_producer(2)), OutOfOrderSequence)
    case.append(of_producer(1))


def test_the_last_stable_offset_waits_for_open_transactions(case: Case) -> None:
    case.fill(2)
    case.append(of_producer(0, 2, transactional=True))
    case.fill(2)
    case.advance(6)
    assert case.log.last_stable_offset == 2
    case.mark(7, commit=True)
    assert case.log.last_stable_offset == 2  # the marker may yet be lost
    case.advance(7)
    assert case.log.last_stable_offset == 7


def test_aborted_transactions_are_listed_for_the_offsets_that_they_touch(case: Case) -> None:
    case.append(of_producer(0, 2, transactional=True))
    case.append(of_producer(0, 2, producer_id=8, transactional=True))
    case.mark(7, commit=False)
    case.mark(8, commit=True)
    case.append(of_producer(2, 2, transactional=True))
    case.mark(7, commit=False)
    expected = {(0, 9): [0, 6], (0, 6): [0], (5, 9): [6], (4, 5): [0], (9, 9): []}
    for (start, below), firsts in expected.items():
        aborted = case.log.aborted(Offset(start), Offset(below))
        assert [entry.first_offset for entry in aborted] == firsts


def test_truncation_reopens_a_transaction_whose_marker_it_removes(case: Case) -> None:
    case.append(of_producer(0, 2, transactional=True))
    case.mark(7, commit=False)
    case.advance(3)
    case.truncate(2)
    assert case.log.aborted(Offset(0), Offset(9)) == []
    assert case.log.last_stable_offset == 0
    case.mark(7, commit=True)
    case.advance(3)
    assert case.log.last_stable_offset == 3
