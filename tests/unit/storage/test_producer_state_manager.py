import pytest

from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.storage.errors import (
    CoordinatorFenced,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
    UnknownProducer,
)
from penstock.storage.producer_snapshot import decode, encode
from penstock.storage.producer_state_manager import CompletedTxn, ProducerStateManager

WRAP = 2**31
DAY_MS = 24 * 60 * 60 * 1000


class Log:
    """A producer state, used as by a leader's log: find duplicate, check, append, apply."""

    def __init__(self) -> None:
        self.state = ProducerStateManager("orders-0")
        self.end_offset = 0

    def append(
        self,
        base_sequence: int,
        count: int = 1,
        *,
        pid: int = 0,
        epoch: int = 0,
        transactional: bool = False,
        timestamp_ms: int = 1000,
        now_ms: int | None = None,
    ) -> int:
        """Append a batch; returns its base offset."""
        last_sequence = (base_sequence + count - 1) % WRAP
        assert self.state.find_duplicate(pid, epoch, base_sequence, last_sequence) is None
        self.state.check(
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            last_sequence=last_sequence,
            transactional=transactional,
        )
        base_offset, self.end_offset = self.end_offset, self.end_offset + count
        self.state.apply(
            pid,
            epoch,
            base_sequence,
            last_sequence,
            base_offset,
            self.end_offset - 1,
            timestamp_ms,
            transactional,
            now_ms,
        )
        return base_offset

    def mark(
        self,
        *,
        pid: int = 0,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        commit: bool = True,
        timestamp_ms: int = 1000,
    ) -> CompletedTxn | None:
        self.state.check_marker(pid, epoch, coordinator_epoch)
        offset, self.end_offset = self.end_offset, self.end_offset + 1
        return self.state.apply_marker(pid, epoch, coordinator_epoch, commit, offset, timestamp_ms)

    def refuses(self, error: type[StorageError], base_sequence: int, **options: int | bool) -> None:
        before = (self.state.producers(), self.state.first_unstable_offset, self.end_offset)
        with pytest.raises(error, match="orders-0"):
            self.append(base_sequence, **options)  # type: ignore[arg-type]
        assert (self.state.producers(), self.state.first_unstable_offset, self.end_offset) == before


@pytest.fixture
def log() -> Log:
    return Log()


# Sequences


def test_a_producer_starts_at_sequence_zero_without_gaps(log: Log) -> None:
    log.append(0, 3)
    log.append(3, 2)
    log.append(5)
    log.refuses(OutOfOrderSequence, 7)
    log.append(6)


def test_an_unknown_producer_may_not_start_after_zero(log: Log) -> None:
    """Otherwise the second batch in flight overtakes the first, whose retries then fail forever."""
    log.refuses(UnknownProducer, 1)
    log.refuses(UnknownProducer, 2**31 - 1)
    assert len(log.state) == 0
    log.append(0)
    log.append(1)


@pytest.mark.parametrize("pid", [0, FIRST_DELIVERER_ID - 1])
@pytest.mark.parametrize("epoch", [0, 32764, 32767])
def test_lowest_and_highest_ids_and_epochs_work(log: Log, pid: int, epoch: int) -> None:
    log.append(0, pid=pid, epoch=epoch)
    log.append(1, pid=pid, epoch=epoch)
    log.refuses(OutOfOrderSequence, 3, pid=pid, epoch=epoch)
    assert log.state.find_duplicate(pid, epoch, 0, 0) == (0, 0, 1000)


def test_producers_do_not_share_sequences(log: Log) -> None:
    log.append(0, 5, pid=0)
    log.append(0, 2, pid=1)
    log.append(5, pid=0)
    log.append(2, pid=1)


def test_a_new_epoch_starts_at_sequence_zero(log: Log) -> None:
    log.append(0, 5, epoch=32764)
    log.refuses(OutOfOrderSequence, 5, epoch=32765)
    log.append(0, epoch=32765)
    log.append(1, epoch=32765)


def test_an_older_epoch_is_fenced_with_any_sequence(log: Log) -> None:
    log.append(0, epoch=1)
    log.refuses(InvalidProducerEpoch, 1, epoch=0)
    log.refuses(InvalidProducerEpoch, 0, epoch=0)


def test_the_epoch_is_checked_before_sequence_and_transaction(log: Log) -> None:
    """The wrong code is fatal to a client: fenced is not out of order."""
    log.append(0, epoch=1, transactional=True)
    log.refuses(InvalidProducerEpoch, 99, epoch=0, transactional=False)


def test_sequences_wrap_to_zero_between_batches(log: Log) -> None:
    log.state.apply(0, 0, WRAP - 3, WRAP - 1, 0, 2, 1000, False)
    log.end_offset = 3
    log.refuses(OutOfOrderSequence, 1)
    log.append(0, 2)
    log.append(2)


def test_sequences_wrap_to_zero_within_a_batch(log: Log) -> None:
    log.state.apply(0, 0, WRAP - 5, WRAP - 4, 0, 1, 1000, False)
    log.end_offset = 2
    assert log.append(WRAP - 3, 5) == 2
    assert log.state.find_duplicate(0, 0, WRAP - 3, 1) == (2, 6, 1000)
    log.append(2)


# Duplicates


def test_the_last_five_batches_are_recognised_with_their_offsets(log: Log) -> None:
    for sequence in range(0, 14, 2):
        log.append(sequence, 2, timestamp_ms=sequence)
    for sequence in range(4, 14, 2):
        duplicate = log.state.find_duplicate(0, 0, sequence, sequence + 1)
        assert duplicate == (sequence, sequence + 1, sequence)
    assert log.state.find_duplicate(0, 0, 2, 3) is None


def test_a_batch_before_the_window_is_a_duplicate_without_an_offset(log: Log) -> None:
    for sequence in range(7):
        log.append(sequence)
    log.refuses(DuplicateSequence, 1)
    log.refuses(DuplicateSequence, 0)


def test_a_batch_with_other_boundaries_is_not_a_duplicate(log: Log) -> None:
    log.append(0, 4)
    assert log.state.find_duplicate(0, 0, 0, 2) is None
    log.refuses(OutOfOrderSequence, 0, count=3)
    log.refuses(OutOfOrderSequence, 2, count=4)


def test_a_batch_of_another_epoch_or_producer_is_not_a_duplicate(log: Log) -> None:
    log.append(0, epoch=1)
    assert log.state.find_duplicate(0, 0, 0, 0) is None
    assert log.state.find_duplicate(0, 2, 0, 0) is None
    assert log.state.find_duplicate(1, 1, 0, 0) is None


def test_batches_of_an_older_epoch_are_dropped(log: Log) -> None:
    log.append(0, epoch=0)
    log.append(0, 2, epoch=1)
    assert log.state.find_duplicate(0, 1, 0, 0) is None


def test_a_batch_that_overtakes_the_wrap_is_not_a_duplicate(log: Log) -> None:
    """Its sequence is small, yet it was never stored: treating it as a duplicate would lose it."""
    log.state.apply(0, 0, WRAP - 6, WRAP - 4, 0, 2, 1000, False)
    log.refuses(OutOfOrderSequence, 0, count=3)


def test_a_large_sequence_soon_after_zero_is_not_a_duplicate(log: Log) -> None:
    for sequence in range(8):
        log.append(sequence)
    log.refuses(OutOfOrderSequence, WRAP - 1)


def test_batches_without_sequences_are_checked_by_epoch_only(log: Log) -> None:
    state = log.state
    for offset in range(3):
        assert state.find_duplicate(0, 4, -1, -1) is None
        state.check(
            producer_id=0, producer_epoch=4, base_sequence=-1, last_sequence=-1, transactional=True
        )
        state.apply(0, 4, -1, -1, offset, offset, 1000, True)
    with pytest.raises(InvalidProducerEpoch):
        state.check(
            producer_id=0, producer_epoch=3, base_sequence=-1, last_sequence=-1, transactional=True
        )


def test_stored_batches_are_applied_without_checks() -> None:
    follower = ProducerStateManager()
    follower.apply(0, 5, 100, 109, 0, 9, 1000, False)  # starts at any sequence
    follower.apply(0, 5, 500, 509, 20, 29, 1000, False)  # has gaps, as after compaction
    follower.apply(0, 3, 7, 7, 30, 30, 1000, False)  # the leader had expired epoch 5
    entry = follower.find(0)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (3, 7, 30)
    assert follower.map_end_offset == 31


# Transactions


def test_a_transaction_is_unstable_from_its_first_offset_until_its_marker_is_replicated(
    log: Log,
) -> None:
    log.append(0, 5, pid=1)
    first = log.append(0, 2, transactional=True)
    log.append(2, 2, transactional=True)
    assert log.state.first_unstable_offset == first == 5
    completed = log.mark(commit=True)
    assert completed == (0, 5, 9, False)
    assert log.state.first_unstable_offset == 5
    log.state.on_high_watermark(9)  # the marker itself is at 9, not below
    assert log.state.first_unstable_offset == 5
    log.state.on_high_watermark(10)
    assert log.state.first_unstable_offset is None


def test_a_transaction_at_offset_zero_is_tracked(log: Log) -> None:
    log.append(0, transactional=True)
    assert log.state.first_unstable_offset == 0
    assert log.mark(commit=False) == (0, 0, 1, True)
    assert log.state.first_unstable_offset == 0


def test_the_oldest_open_transaction_bounds_the_last_stable_offset(log: Log) -> None:
    log.append(0, pid=1, transactional=True)  # 0
    log.append(0, pid=2, transactional=True)  # 1
    log.append(0, pid=3, transactional=True)  # 2
    second = log.mark(pid=2)
    assert second is not None
    log.state.on_high_watermark(log.end_offset)
    assert log.state.first_unstable_offset == 0
    first = log.mark(pid=1, commit=False)
    assert first is not None
    log.state.on_high_watermark(log.end_offset)
    assert log.state.first_unstable_offset == 2


def test_an_index_entry_reaches_up_to_the_next_open_transaction(log: Log) -> None:
    log.append(0, pid=1, transactional=True)  # 0
    log.append(0, pid=2, transactional=True)  # 1
    first = log.mark(pid=1, commit=False)  # 2
    assert first is not None
    assert log.state.last_stable_offset_for(first) == 1
    second = log.mark(pid=2, commit=False)  # 3
    assert second is not None
    assert log.state.last_stable_offset_for(second) == 4


def test_a_completed_transaction_above_the_high_watermark_does_not_lower_an_index_entry(
    log: Log,
) -> None:
    log.append(0, pid=1, transactional=True)  # 0
    log.append(0, pid=2, transactional=True)  # 1
    log.mark(pid=1)  # 2, not replicated
    second = log.mark(pid=2, commit=False)  # 3
    assert second is not None
    assert log.state.last_stable_offset_for(second) == 4
    assert log.state.first_unstable_offset == 0


def test_a_plain_batch_within_a_transaction_is_rejected(log: Log) -> None:
    log.append(0, transactional=True)
    log.refuses(InvalidTransactionState, 1, transactional=False)
    log.append(1, transactional=True)
    log.mark()
    log.append(2, transactional=False)


def test_sequences_continue_after_a_marker_of_the_same_epoch(log: Log) -> None:
    log.append(0, 3, transactional=True)
    log.mark()
    log.refuses(OutOfOrderSequence, 0, transactional=True, count=2)
    assert log.append(3, transactional=True) == 4
    assert log.state.first_unstable_offset == 0  # the first transaction's marker is not replicated
    log.state.on_high_watermark(4)
    assert log.state.first_unstable_offset == 4


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_before_the_last_marker_is_not_a_duplicate(log: Log, commit: bool) -> None:
    for sequence in range(3):
        log.append(sequence, transactional=True)
    log.mark(commit=commit)
    for sequence in range(3):
        log.refuses(OutOfOrderSequence, sequence, transactional=True)
    log.append(3, transactional=True)
    assert log.state.find_duplicate(0, 0, 3, 3) == (4, 4, 1000)
    log.refuses(OutOfOrderSequence, 2, transactional=True)


def test_a_batch_long_before_the_last_marker_is_not_a_duplicate(log: Log) -> None:
    """Clients treat a duplicate as stored, but it may have been aborted."""
    for sequence in range(7):
        log.append(sequence, transactional=True)
    log.refuses(DuplicateSequence, 1, transactional=True)
    log.mark(commit=False)
    for sequence in range(7, 14):
        log.append(sequence, transactional=True)
        log.refuses(OutOfOrderSequence, 1, transactional=True)


def test_a_snapshot_distinguishes_batches_of_the_open_transaction_from_earlier_ones(
    log: Log,
) -> None:
    log.append(0, pid=1, transactional=True)
    log.append(0, pid=2, transactional=True)
    log.mark(pid=1, commit=False)
    log.mark(pid=2, commit=False)
    log.append(1, pid=2, transactional=True)
    log.append(0, pid=3)
    log.state.load(decode(encode(log.state.producers())), map_end_offset=log.end_offset)
    log.refuses(OutOfOrderSequence, 0, pid=1, transactional=True)
    assert log.state.find_duplicate(2, 0, 1, 1) == (4, 4, 1000)
    assert log.state.find_duplicate(3, 0, 0, 0) == (5, 5, 1000)
    log.append(1, pid=1, transactional=True)


def test_a_plain_batch_after_a_marker_is_recognised_as_a_duplicate(log: Log) -> None:
    log.append(0, transactional=True)
    log.mark()
    log.append(1)
    assert log.state.find_duplicate(0, 0, 1, 1) == (2, 2, 1000)


def test_a_marker_of_a_higher_epoch_fences_the_previous_one(log: Log) -> None:
    log.append(0, transactional=True, epoch=32764)
    assert log.mark(epoch=32765, commit=False) == (0, 0, 1, True)
    log.refuses(InvalidProducerEpoch, 1, transactional=True, epoch=32764)
    log.refuses(OutOfOrderSequence, 1, transactional=True, epoch=32765)
    log.append(0, transactional=True, epoch=32765)


def test_a_repeated_marker_is_accepted_and_ends_nothing(log: Log) -> None:
    log.append(0, transactional=True, epoch=1)
    assert log.mark(epoch=1, coordinator_epoch=5) is not None
    assert log.mark(epoch=1, coordinator_epoch=5) is None
    assert log.mark(epoch=1, coordinator_epoch=6) is None
    log.state.on_high_watermark(log.end_offset)
    assert log.state.first_unstable_offset is None


def test_a_marker_of_a_replaced_coordinator_or_older_epoch_is_rejected(log: Log) -> None:
    log.append(0, transactional=True, epoch=3)
    log.mark(epoch=3, coordinator_epoch=5)
    with pytest.raises(CoordinatorFenced, match="coordinator epoch 4"):
        log.state.check_marker(0, 3, 4)
    with pytest.raises(InvalidProducerEpoch):
        log.state.check_marker(0, 2, 5)
    with pytest.raises(InvalidProducerEpoch):  # checked first, because clients act on its code
        log.state.check_marker(0, 2, 4)


@pytest.mark.parametrize(
    "late",
    [
        (0, 2, 2, 9),  # a stale producer epoch
        (0, 3, 2, 9),  # transactions v2: it ended a transaction before that epoch's data
        (0, 3, 3, 6),  # a stale coordinator epoch
    ],
)
def test_a_log_is_past_a_late_marker_once_the_end_of_its_transaction_is_replicated(
    log: Log, late: tuple[int, int, int, int]
) -> None:
    assert not log.state.is_past(*late)  # the producer is unknown
    log.append(0, epoch=3, transactional=True)
    assert not log.state.is_past(*late)
    log.mark(epoch=3, coordinator_epoch=7)
    assert not log.state.is_past(*late)  # not replicated, so it may still be lost
    log.state.on_high_watermark(log.end_offset)
    assert log.state.is_past(*late)
    assert not log.state.is_past(0, 3, 3, 7)  # a repeated marker is not late
    log.append(1, epoch=3, transactional=True)
    assert not log.state.is_past(*late)


def test_a_log_is_not_past_the_marker_that_moved_it_to_its_epoch(log: Log) -> None:
    """Transactions v2: a marker may be repeated (KAFKA-19999)."""
    log.append(0, epoch=3, transactional=True)
    log.mark(epoch=4, coordinator_epoch=7)
    log.state.on_high_watermark(log.end_offset)
    assert not log.state.is_past(0, 4, 3, 7)
    log.append(0, epoch=4)
    assert log.state.is_past(0, 4, 3, 7)


def test_a_marker_adds_an_unknown_producer(log: Log) -> None:
    assert log.mark(pid=9, epoch=2, coordinator_epoch=0) is None
    assert log.state.first_unstable_offset is None
    log.refuses(InvalidProducerEpoch, 0, pid=9, epoch=1)
    log.append(0, pid=9, epoch=2)


# Expiry


def test_a_producer_expires_only_after_the_expiration_time(log: Log) -> None:
    log.append(0, pid=1, timestamp_ms=1000)
    log.append(0, pid=2, timestamp_ms=2000)
    assert log.state.expire(DAY_MS + 999, DAY_MS) == 0
    assert log.state.expire(DAY_MS + 1000, DAY_MS) == 1
    assert [entry.producer_id for entry in log.state.producers()] == [2]


def test_a_producer_with_an_open_transaction_never_expires(log: Log) -> None:
    log.append(0, transactional=True)
    assert log.state.expire(100 * DAY_MS, DAY_MS) == 0
    log.mark(timestamp_ms=100 * DAY_MS)
    assert log.state.expire(100 * DAY_MS, DAY_MS) == 0  # the marker counts as activity
    assert log.state.expire(101 * DAY_MS, DAY_MS) == 1


def test_a_broker_that_delivers_deferred_messages_never_expires(log: Log) -> None:
    """It sends an unconfirmed batch again however late it is, and a copy must be recognised."""
    log.append(0, 3, pid=FIRST_DELIVERER_ID)
    assert log.state.expire(1000 * DAY_MS, DAY_MS) == 0
    log.state.load(log.state.producers(), map_end_offset=3, now_ms=0)
    assert log.state.expire(1000 * DAY_MS, DAY_MS) == 0
    assert log.state.find_duplicate(FIRST_DELIVERER_ID, 0, 0, 2) is not None


def test_a_broker_that_delivers_may_continue_after_a_gap(log: Log) -> None:
    """It has one batch under way: what is missing is lost here, and is never sent again."""
    log.append(40, pid=FIRST_DELIVERER_ID)
    log.append(50, pid=FIRST_DELIVERER_ID)
    log.append(51, pid=FIRST_DELIVERER_ID, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        log.append(52, pid=FIRST_DELIVERER_ID, epoch=0)


def test_expiration_counts_from_the_append_not_from_the_record_timestamp(log: Log) -> None:
    """A producer that writes old or future timestamps is not idle."""
    log.append(0, pid=1, timestamp_ms=0, now_ms=50 * DAY_MS)
    log.append(0, pid=2, timestamp_ms=999 * DAY_MS, now_ms=50 * DAY_MS)
    assert log.state.expire(50 * DAY_MS + DAY_MS - 1, DAY_MS) == 0
    log.append(1, pid=1, timestamp_ms=0, now_ms=51 * DAY_MS)
    assert log.state.expire(51 * DAY_MS, DAY_MS) == 1
    assert [entry.producer_id for entry in log.state.producers()] == [1]


def test_a_completed_transaction_outlives_its_producer_until_replicated(log: Log) -> None:
    log.append(0, transactional=True)
    log.mark()
    assert log.state.expire(100 * DAY_MS, DAY_MS) == 1
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark(2)
    assert log.state.first_unstable_offset is None


# The whole state


def test_a_producer_entry_shows_its_last_batch_and_open_transaction(log: Log) -> None:
    log.append(0, 3, pid=7, epoch=2, timestamp_ms=11)
    log.append(3, 2, pid=7, epoch=2, timestamp_ms=12, transactional=True)
    assert log.state.producers() == [(7, 2, 4, 4, 1, 12, -1, 3)]
    log.mark(pid=7, epoch=2, coordinator_epoch=9, timestamp_ms=13)
    assert log.state.find(7) == (7, 2, 4, 4, 1, 13, 9, None)
    assert log.state.find(8) is None


def test_the_state_has_the_offset_up_to_which_it_covers_the_log(log: Log) -> None:
    assert log.state.map_end_offset == 0
    log.append(0, 3)
    assert log.state.map_end_offset == 3
    log.mark()
    assert log.state.map_end_offset == 4


def test_clear_removes_everything(log: Log) -> None:
    log.append(0, transactional=True)
    log.append(0, pid=1, transactional=True)
    log.mark(pid=1)
    log.state.clear()
    assert len(log.state) == 0
    assert log.state.first_unstable_offset is None
    assert log.state.map_end_offset == 0
    log.state.on_high_watermark(99)


def test_load_replaces_the_state(log: Log) -> None:
    log.append(0, pid=1, transactional=True)
    other = Log()
    other.append(0, 4, pid=2)
    other.append(0, 2, pid=3, transactional=True)
    log.state.load(other.state.producers(), map_end_offset=6)
    assert log.state.producers() == other.state.producers()
    assert log.state.first_unstable_offset == 4
    assert log.state.map_end_offset == 6


def test_a_producer_continues_after_loading_a_snapshot(log: Log) -> None:
    for sequence in range(0, 6, 2):
        log.append(sequence, 2, epoch=32764, transactional=True)
    log.state.load(decode(encode(log.state.producers())), map_end_offset=6)
    assert log.state.first_unstable_offset == 0
    assert log.state.find_duplicate(0, 32764, 4, 5) == (4, 5, 1000)
    log.refuses(DuplicateSequence, 2, count=2, epoch=32764, transactional=True)
    log.refuses(OutOfOrderSequence, 8, epoch=32764, transactional=True)
    log.append(6, epoch=32764, transactional=True)
    assert log.mark(epoch=32764, commit=False) == (0, 0, 7, True)


def test_a_snapshot_keeps_a_batch_that_wrapped(log: Log) -> None:
    log.state.apply(0, 0, WRAP - 3, 1, 10, 14, 1000, False)
    log.state.load(decode(encode(log.state.producers())), map_end_offset=15)
    assert log.state.find_duplicate(0, 0, WRAP - 3, 1) == (10, 14, 1000)
    log.end_offset = 15
    log.append(2)


def test_a_snapshot_keeps_a_batch_at_offset_zero(log: Log) -> None:
    log.append(0)
    log.state.load(decode(encode(log.state.producers())), map_end_offset=1)
    assert log.state.find_duplicate(0, 0, 0, 0) == (0, 0, 1000)
    log.append(1)


def test_an_older_open_transaction_counts_before_a_newer_completed_one(log: Log) -> None:
    log.append(0, pid=1, transactional=True)  # 0
    log.append(0, pid=2, transactional=True)  # 1
    log.mark(pid=2)
    assert log.state.first_unstable_offset == 0


def test_a_restart_does_not_expire_a_producer_with_old_timestamps(log: Log) -> None:
    log.append(0, timestamp_ms=0)
    log.state.load(log.state.producers(), map_end_offset=1, now_ms=50 * DAY_MS)
    assert log.state.expire(50 * DAY_MS + 1, DAY_MS) == 0
    assert log.state.expire(51 * DAY_MS, DAY_MS) == 1
