"""Any two leader histories: a follower that truncates by the leader's epochs ends exactly where the
two logs diverge.

A log is a list of epochs here, one per record: epoch and offset identify a record.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.model.ids import LeaderEpoch, Offset
from penstock.replication.truncation import find_divergence, truncation_offset
from penstock.storage.leader_epoch_cache import LeaderEpochCache, OffsetAndEpoch

SETTINGS = settings(max_examples=scaled(test=300, verify=3000, release=30_000), deadline=None)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs that elections have grown: the elected replica appends to its own log in a new
    epoch.

    Sometimes the other replica first copies a part of it, as a follower does after truncating to
    the divergence.
    """
    logs: tuple[list[int], list[int]] = ([], [])
    for epoch in range(draw(st.integers(1, 8))):
        leader = draw(st.integers(0, 1))
        own, other = logs[leader], logs[1 - leader]
        own += [epoch] * draw(st.integers(0, 3))
        if draw(st.booleans()):
            copied = draw(st.integers(0, len(own)))
            common = common_end(own, other)
            if copied >= common:
                other[:] = own[:copied]
    return logs


def common_end(one: list[int], other: list[int]) -> int:
    """Records at the same offset are equal if they have the same epoch, because an epoch has one
    leader."""
    end = 0
    while end < min(len(one), len(other)) and one[end] == other[end]:
        end += 1
    return end


def epochs_of(log: list[int]) -> LeaderEpochCache:
    cache = LeaderEpochCache()
    for offset, epoch in enumerate(log):
        if cache.latest < epoch:
            cache.assign(epoch, offset)
    return cache


@SETTINGS
@given(logs=two_logs())
def test_a_follower_truncates_to_the_divergence_and_no_further(
    logs: tuple[list[int], list[int]],
) -> None:
    leader, follower = logs
    leader_epochs = epochs_of(leader)
    leader_epochs.assign(99, len(leader))  # it is the leader now, in an epoch of its own
    expected = common_end(leader, follower)
    for _ in range(20):
        epoch = epochs_of(follower).latest
        if epoch < 0:
            break
        end = leader_epochs.find_end_offset(epoch, len(leader))
        assert end is not None
        diverging = find_divergence(
            end, fetch_offset=Offset(len(follower)), last_fetched_epoch=LeaderEpoch(epoch)
        )
        if diverging is None:
            break
        own = epochs_of(follower).find_end_offset(diverging.epoch, len(follower))
        offset = truncation_offset(diverging, own, log_end_offset=Offset(len(follower)))
        assert offset < len(follower), "told to cut, and nothing goes: this would never end"
        del follower[offset:]
        assert len(follower) >= expected, "cut what both have"
    assert follower == leader[: len(follower)]
    assert len(follower) == expected


def test_an_epoch_that_only_the_follower_has_is_truncated_whole() -> None:
    """KIP-279: the leader's response names an epoch that the follower never saw."""
    own = OffsetAndEpoch(LeaderEpoch(1), Offset(4))
    diverging = OffsetAndEpoch(LeaderEpoch(2), Offset(7))
    assert truncation_offset(diverging, own, log_end_offset=Offset(9)) == 4


def test_an_epoch_that_ended_earlier_on_the_leader_is_truncated_there() -> None:
    own = OffsetAndEpoch(LeaderEpoch(2), Offset(9))
    diverging = OffsetAndEpoch(LeaderEpoch(2), Offset(7))
    assert truncation_offset(diverging, own, log_end_offset=Offset(9)) == 7


def test_a_reader_whose_last_record_the_leader_has_does_not_diverge() -> None:
    end = OffsetAndEpoch(LeaderEpoch(0), Offset(5))
    for offset, differs in ((4, False), (5, False), (6, True)):
        result = find_divergence(
            end, fetch_offset=Offset(offset), last_fetched_epoch=LeaderEpoch(0)
        )
        assert (result is not None) is differs
