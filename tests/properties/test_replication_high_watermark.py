"""The rule of the high watermark, for any end offsets of any replicas."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.model.ids import Offset
from penstock.replication.high_watermark import UNKNOWN_END, next_high_watermark

SETTINGS = settings(max_examples=scaled(test=150, verify=1500, release=50_000), deadline=None)
OFFSETS = st.integers(0, 2**63 - 1).map(Offset) | st.integers(0, 9).map(Offset)
ENDS = st.lists(OFFSETS | st.just(UNKNOWN_END), min_size=1, max_size=7)


@SETTINGS
@given(OFFSETS, ENDS)
def test_it_never_moves_back_and_never_passes_an_in_sync_replica(
    current: Offset, ends: list[Offset]
) -> None:
    reached = next_high_watermark(current, ends)
    assert reached >= current
    assert reached == current or all(reached <= end for end in ends)


@SETTINGS
@given(OFFSETS, ENDS)
def test_it_advances_to_the_slowest_in_sync_replica(current: Offset, ends: list[Offset]) -> None:
    reached = next_high_watermark(current, ends)
    assert any(end <= reached for end in ends)
    assert next_high_watermark(reached, ends) == reached


@SETTINGS
@given(OFFSETS, ENDS, st.data())
def test_a_replica_that_catches_up_or_leaves_never_lowers_it(
    current: Offset, ends: list[Offset], data: st.DataObject
) -> None:
    reached = next_high_watermark(current, ends)
    position = data.draw(st.integers(0, len(ends) - 1))
    ahead = [*ends[:position], data.draw(st.integers(ends[position], 2**63 - 1).map(Offset))]
    ahead += ends[position + 1 :]
    assert next_high_watermark(current, ahead) >= reached
    assert next_high_watermark(reached, ends[:position] + ends[position + 1 :]) >= reached


def test_a_follower_that_has_not_fetched_holds_it() -> None:
    assert next_high_watermark(Offset(3), (Offset(9), UNKNOWN_END)) == 3
