"""What a leader logs about its ISRs: sums, with the reason of each follower."""

from collections.abc import Callable
from typing import NamedTuple, cast

from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.ids import Offset, TopicPartition
from penstock.replication.follower_progress import FollowerProgress, LagLimits
from penstock.replication.isr_log import (
    CAUGHT_UP,
    LAGGING,
    NOT_FETCHING,
    TOO_FAR_BEHIND,
    IsrLog,
    find_reason,
)
from penstock.replication.partition import Partition

ONE, TWO = BrokerId(1), BrokerId(2)
LIMITS = LagLimits(max_ms=1000, max_messages=10)


def progress(*, caught_up_ms: int, fetched_ms: int) -> FollowerProgress:
    return FollowerProgress(Offset(5), caught_up_ms, fetched_ms, Offset(50), BrokerEpoch(1))


def test_the_reason_tells_a_silent_follower_from_a_slow_one() -> None:
    silent = progress(caught_up_ms=0, fetched_ms=0)
    slow = progress(caught_up_ms=0, fetched_ms=1900)
    far = progress(caught_up_ms=1900, fetched_ms=1900)
    reasons = [find_reason(one, limits=LIMITS, now_ms=2000) for one in (None, silent, slow, far)]
    assert reasons == [NOT_FETCHING, NOT_FETCHING, LAGGING, TOO_FAR_BEHIND]


class FakeState(NamedTuple):
    in_sync: tuple[BrokerId, ...]


class FakePartition(NamedTuple):
    tp: TopicPartition
    state: FakeState
    followers: dict[BrokerId, FollowerProgress]


def partition(number: int, in_sync: tuple[BrokerId, ...]) -> Partition:
    """Only what the log reads."""
    fake = FakePartition(TopicPartition("orders", number), FakeState(in_sync), {})
    return cast("Partition", fake)


def test_the_changes_of_a_moment_are_one_event_per_follower_and_reason() -> None:
    events: list[tuple[str, object, object, object]] = []
    later: list[Callable[[], None]] = []
    logger = EventLogger(
        lambda level, event, message, fields: events.append(
            (event, fields["replicas"], fields["count"], fields["reason"])
        )
    )
    log = IsrLog(logger, later.append)
    for number in range(30):
        log.add(partition(number, (ONE,)), (ONE, TWO), limits=LIMITS, now_ms=0)
    log.add(partition(30, (ONE, TWO)), (ONE,), limits=LIMITS, now_ms=0)
    assert events == []
    (flush,) = later
    flush()
    assert events == [
        ("isr_shrunk", [TWO], 30, NOT_FETCHING),
        ("isr_expanded", [TWO], 1, CAUGHT_UP),
    ]
