"""The rules on follower progress, lag and the ISR, by table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.cluster import BrokerEpoch, BrokerId, PartitionState
from penstock.model.ids import LeaderEpoch, Offset
from penstock.replication.follower_progress import (
    NEVER_MS,
    FollowerProgress,
    LagLimits,
    first_progress,
    is_keeping_up,
    is_lagging,
    may_join,
    progress_after_fetch,
)
from penstock.replication.high_watermark import UNKNOWN_END
from penstock.replication.isr import assured, maximal, with_joiner, without_laggards

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LIMITS = LagLimits(100)
NO_EPOCH = BrokerEpoch(-1)


def progress(
    end: int, *, caught_up_ms: int = 0, fetched_ms: int = 0, leader: int = 0
) -> FollowerProgress:
    return FollowerProgress(Offset(end), caught_up_ms, fetched_ms, Offset(leader), NO_EPOCH)


def after(before: FollowerProgress, *, offset: int, leader: int, now_ms: int) -> FollowerProgress:
    return progress_after_fetch(
        before,
        offset=Offset(offset),
        leader_end_offset=Offset(leader),
        broker_epoch=BrokerEpoch(5),
        now_ms=now_ms,
    )


def test_a_follower_at_the_log_end_is_caught_up_now() -> None:
    then = after(progress(3, caught_up_ms=1), offset=9, leader=9, now_ms=50)
    assert then == FollowerProgress(Offset(9), 50, 50, Offset(9), BrokerEpoch(5))


def test_a_follower_at_the_leaders_previous_end_was_caught_up_then() -> None:
    before = progress(3, caught_up_ms=1, fetched_ms=40, leader=9)
    assert after(before, offset=9, leader=20, now_ms=50).caught_up_ms == 40
    assert after(before, offset=8, leader=20, now_ms=50).caught_up_ms == 1


def test_the_first_fetch_of_an_epoch_shows_no_earlier_progress() -> None:
    first = first_progress(is_in_sync=False, now_ms=30)
    assert first.caught_up_ms == NEVER_MS
    assert after(first, offset=0, leader=7, now_ms=50).caught_up_ms == NEVER_MS


@pytest.mark.parametrize(
    ("end", "caught_up_ms", "now_ms", "lags"),
    [
        (10, 0, 1_000_000, False),  # at the log end: in sync however long idle (KAFKA-7152)
        (9, 0, 100, False),
        (9, 0, 101, True),
        (UNKNOWN_END, 0, 100, False),  # under a new leader it has the full lag time
        (UNKNOWN_END, 0, 101, True),
    ],
)
def test_a_follower_lags_after_replica_lag_time_max_ms(
    end: int, caught_up_ms: int, now_ms: int, lags: bool
) -> None:
    result = is_lagging(
        progress(end, caught_up_ms=caught_up_ms),
        leader_end_offset=Offset(10),
        limits=LIMITS,
        now_ms=now_ms,
    )
    assert result is lags


@pytest.mark.parametrize(
    ("end", "lags"), [(10, False), (7, False), (6, True), (UNKNOWN_END, False)]
)
def test_a_follower_lags_by_messages_if_configured(end: int, lags: bool) -> None:
    limits = LagLimits(100, max_messages=3)
    result = is_lagging(progress(end), leader_end_offset=Offset(10), limits=limits, now_ms=1)
    assert result is lags


def test_an_idle_follower_stays_in_sync() -> None:
    now_ms, item = 0, first_progress(is_in_sync=True, now_ms=0)
    for _ in range(600):
        item = after(item, offset=0, leader=0, now_ms=now_ms)
        now_ms += 500
        result = is_lagging(item, leader_end_offset=Offset(0), limits=LIMITS, now_ms=now_ms)
        assert not result


@pytest.mark.parametrize(
    ("end", "joins"), [(4, False), (5, False), (7, False), (8, True), (9, True), (-1, False)]
)
def test_a_follower_joins_at_the_start_of_the_epoch_not_at_the_high_watermark(
    end: int, joins: bool
) -> None:
    """KAFKA-7128: a new leader's high watermark may be below what an earlier one committed."""
    result = may_join(progress(end), high_watermark=Offset(5), epoch_start_offset=Offset(8))
    assert result is joins


def test_a_follower_joins_at_the_high_watermark_once_that_is_past_the_epochs_start() -> None:
    rule = {"high_watermark": Offset(12), "epoch_start_offset": Offset(8)}
    assert not may_join(progress(11), **rule)
    assert may_join(progress(12), **rule)


def test_only_a_follower_that_keeps_up_holds_back_the_high_watermark() -> None:
    item = progress(9, caught_up_ms=100)
    for now_ms, waited in ((150, True), (199, True), (200, False)):
        result = is_keeping_up(item, leader_end_offset=Offset(10), limits=LIMITS, now_ms=now_ms)
        assert result is waited
    assert not is_keeping_up(
        first_progress(is_in_sync=True, now_ms=0),
        leader_end_offset=Offset(10),
        limits=LIMITS,
        now_ms=1,
    )


def test_the_maximal_isr_commits_and_the_smaller_one_counts_for_min_isr() -> None:
    """KIP-497."""
    assert maximal((ONE, TWO), None) == assured((ONE, TWO), None) == (ONE, TWO)
    assert maximal((ONE, TWO), (ONE, TWO, THREE)) == (ONE, TWO, THREE)
    assert assured((ONE, TWO), (ONE, TWO, THREE)) == (ONE, TWO)
    assert maximal((ONE, TWO), (ONE,)) == (ONE, TWO)
    assert assured((ONE, TWO), (ONE,)) == (ONE,)


MEMBERS = st.lists(st.sampled_from([ONE, TWO, THREE]), unique=True).map(tuple)


@settings(deadline=None)
@given(stored=MEMBERS, proposed=st.none() | MEMBERS)
def test_assured_members_are_in_the_maximal_isr(
    stored: tuple[BrokerId, ...], proposed: tuple[BrokerId, ...] | None
) -> None:
    either, both = maximal(stored, proposed), assured(stored, proposed)
    assert set(both) <= set(stored) <= set(either)
    assert set(either) == set(stored) | set(proposed or ())
    if proposed is not None:
        assert set(both) == set(stored) & set(proposed)


STATE = PartitionState(ONE, LeaderEpoch(4), (ONE, TWO, THREE), (ONE, TWO))


def test_lagging_followers_are_removed_but_never_the_leader() -> None:
    followers = {TWO: progress(3, caught_up_ms=0), THREE: progress(9, caught_up_ms=500)}
    state = STATE._replace(in_sync=(ONE, TWO, THREE))
    kept = without_laggards(
        state, followers, leader_end_offset=Offset(10), limits=LIMITS, now_ms=500
    )
    assert kept == (ONE, THREE)


def test_a_follower_that_joins_is_added_last_and_once() -> None:
    rule = {"high_watermark": Offset(5), "epoch_start_offset": Offset(0)}
    assert with_joiner(STATE, THREE, progress(5), **rule) == (ONE, TWO, THREE)
    assert with_joiner(STATE, THREE, progress(4), **rule) == (ONE, TWO)
    assert with_joiner(STATE, TWO, progress(9), **rule) == (ONE, TWO)
    assert with_joiner(STATE, BrokerId(4), progress(9), **rule) == (ONE, TWO)
