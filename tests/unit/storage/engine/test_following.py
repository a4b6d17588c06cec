"""Follower appends."""

from tests.unit.storage.engine.cases import Case, batch_of, of_producer

from penstock.model.ids import LeaderEpoch
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import (
    CorruptRecords,
    InvalidRecords,
    UnexpectedOffset,
)


def test_a_follower_keeps_offsets_epochs_and_gaps(case: Case) -> None:
    assert case.follow(5, 2, epoch=1) == (5, 7, -1, False)
    case.follow(10, 1, epoch=2)
    assert case.read_all() == [(5, 6), (10, 10)]
    assert case.log.log_end_offset == 11
    assert case.log.find_epoch_end(LeaderEpoch(1)) == (1, 10)


def test_a_follower_leaves_out_a_partial_batch_at_the_end(case: Case) -> None:
    whole = batch_of(2, leader_epoch=0)
    rest = batch_of(2, base_offset=2, leader_epoch=0)[:-3]
    assert case.append(whole + rest, AppendOrigin.REPLICATION).end_offset == 2


def test_a_follower_rejects_batches_that_do_not_continue_its_log(case: Case) -> None:
    case.follow(0, 3)
    again = batch_of(1, base_offset=2, leader_epoch=4)
    assert isinstance(case.try_append(again, AppendOrigin.REPLICATION), UnexpectedOffset)
    damaged = batch_of(1, base_offset=3, leader_epoch=4)
    damaged[-1] ^= 1
    assert isinstance(case.try_append(damaged, AppendOrigin.REPLICATION), CorruptRecords)
    assert isinstance(case.try_append(b"nothing", AppendOrigin.REPLICATION), InvalidRecords)
    assert case.read_all() == [(0, 2)]


def test_a_followers_append_is_stored_whole_or_not_at_all(case: Case) -> None:
    good = batch_of(1, leader_epoch=4)
    overlapping = batch_of(1, leader_epoch=4)
    assert isinstance(
        case.try_append(good + overlapping, AppendOrigin.REPLICATION), UnexpectedOffset
    )
    assert case.log.log_end_offset == 0


def test_followers_do_not_check_sequences(case: Case) -> None:
    case.append(of_producer(5, leader_epoch=4), AppendOrigin.REPLICATION)
    case.append(of_producer(9, base_offset=1, leader_epoch=4), AppendOrigin.REPLICATION)
    entry = case.log.producers.find(7)
    assert entry is not None
    assert entry.last_sequence == 9
