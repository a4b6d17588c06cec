"""Follower state: what it fetches, and how each response changes its log."""

import pytest
from tests.unit.replication.harness import ME, OTHER, P0, P1, THIRD, WALL_MS, ReplicationHarness

from penstock.client.data_calls import FetchedPartition, FetchFrom
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.replication.follower_state import FIRST_BACKOFF_MS

BOTH = (ME, OTHER)
BACKOFF_MS = 1000
NOTHING = memoryview(b"")


def batches(*epochs: int, start: int = 0) -> memoryview:
    """Build batches of one record each, with these leader epochs."""
    content = bytearray()
    for offset, epoch in enumerate(epochs, start):
        record = Record(offset, WALL_MS, b"k", b"v")
        content += build_batch([record], base_offset=offset, leader_epoch=epoch)
    return memoryview(content)


def answer(
    *,
    error: ErrorCode = ErrorCode.NONE,
    records: memoryview = NOTHING,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
    name: TopicPartition = P0,
) -> FetchedPartition:
    parted = None if diverging is None else (LeaderEpoch(diverging[0]), Offset(diverging[1]))
    marks = Offset(high_watermark), Offset(high_watermark), Offset(log_start)
    return FetchedPartition(name, error, *marks, (), records, parted)


class FollowerHarness(ReplicationHarness):
    """Broker 1 follows broker 2."""

    def __init__(self, *, epoch: int = 0, **configs: str) -> None:
        super().__init__()
        if configs:
            self.update_topic("orders", 3, **configs)
        self.news: list[BrokerId] = []
        self.following = self.replicas.follower_state
        self.following.on_news = self.news.append
        self.follow(epoch)

    def follow(self, epoch: int, leader: BrokerId = OTHER) -> None:
        self.leader_and_isr(
            P0, leader=leader, replicas=(ME, OTHER, THIRD), in_sync=BOTH, epoch=epoch
        )

    def ask(self, leader: BrokerId = OTHER) -> FetchFrom:
        (requested,) = self.following.list_wanted(leader)
        return requested

    def take(self, fetched: FetchedPartition, requested: FetchFrom | None = None) -> None:
        self.following.apply(OTHER, requested or self.ask(), fetched)

    @property
    def end(self) -> int:
        return self.partition().log_end_offset


def test_a_follower_fetches_from_its_log_end_with_leader_and_last_fetched_epoch() -> None:
    harness = FollowerHarness(epoch=3)
    requested = harness.ask()
    assert (requested.offset, requested.leader_epoch, requested.last_fetched_epoch) == (0, 3, -1)
    harness.take(answer(records=batches(1, 1, 2)))
    requested = harness.ask()
    assert (requested.offset, requested.leader_epoch, requested.last_fetched_epoch) == (3, 3, 2)
    assert harness.news == [OTHER]


def test_a_response_has_records_offsets_and_epochs() -> None:
    harness = FollowerHarness(epoch=2)
    harness.take(answer(records=batches(0, 1, 2), high_watermark=2))
    log = harness.partition().log
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 2, 0)
    harness.take(answer(high_watermark=9, log_start=2))
    assert (log.high_watermark, log.log_start_offset) == (3, 2)
    end = log.find_epoch_end(LeaderEpoch(1))
    assert end is not None
    assert end.end_offset == 2


def test_a_follower_refuses_producers_with_not_leader() -> None:
    harness = FollowerHarness()
    assert harness.append(P0).codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_response_of_another_leader_epoch_changes_nothing() -> None:
    """KAFKA-7786."""
    harness = FollowerHarness(epoch=1)
    requested = harness.ask()
    harness.follow(2)
    harness.take(answer(records=batches(0)), requested)
    harness.take(answer(diverging=(0, 0)), requested)
    assert harness.end == 0
    assert harness.news == [OTHER, OTHER]


def test_a_response_of_a_previous_leader_changes_nothing() -> None:
    harness = FollowerHarness(epoch=1)
    requested = harness.ask()
    harness.follow(1, leader=THIRD)
    harness.take(answer(records=batches(0)), requested)
    assert harness.end == 0
    assert harness.following.list_wanted(OTHER) == []
    assert harness.ask(THIRD).offset == 0


def test_a_duplicate_response_is_ignored() -> None:
    harness = FollowerHarness()
    requested = harness.ask()
    harness.take(answer(records=batches(0)), requested)
    harness.take(answer(records=batches(0)), requested)
    assert harness.end == 1
    assert harness.ask().offset == 1  # it continues to fetch


def test_a_follower_truncates_what_its_leader_does_not_have() -> None:
    harness = FollowerHarness(epoch=1)
    harness.take(answer(records=batches(0, 0, 1, 1)))
    harness.follow(2)
    harness.take(answer(diverging=(0, 1)))
    assert harness.end == 1
    assert harness.ask().last_fetched_epoch == 0
    harness.take(answer(records=batches(2, 2, start=1)))
    assert harness.end == 3


def test_a_response_for_another_history_of_the_same_length_truncates_nothing() -> None:
    """The leader has counted the fetch offset as progress, so it must not be truncated again."""
    harness = FollowerHarness(epoch=1)
    harness.take(answer(records=batches(1, 1, 1)))
    harness.follow(2)
    requested = harness.ask()
    harness.take(answer(diverging=(1, 1)), requested)
    harness.take(answer(records=batches(2, 2, start=1)))
    assert harness.end == 3
    harness.take(answer(diverging=(1, 1)), requested)
    assert harness.end == 3


def test_a_follower_truncates_until_the_leader_has_its_last_record() -> None:
    """KIP-279: the leader names an epoch that this log does not have."""
    harness = FollowerHarness(epoch=5)
    harness.take(answer(records=batches(1, 1, 4)))
    harness.take(answer(diverging=(3, 2)))
    assert harness.end == 2
    requested = harness.ask()
    assert requested.last_fetched_epoch == 1
    harness.take(answer(diverging=(1, 1)))
    assert harness.end == 1


def test_a_leader_epoch_without_records_is_dropped_when_following() -> None:
    """It would contradict what the new leader wrote in its place."""
    harness = FollowerHarness(epoch=0)
    harness.take(answer(records=batches(0, 0)))
    harness.leader_and_isr(P0, leader=ME, replicas=(ME, OTHER, THIRD), in_sync=BOTH, epoch=4)
    assert harness.partition().log.latest_epoch == 4
    harness.follow(5)
    assert harness.ask().last_fetched_epoch == 0


def test_a_follower_below_the_leaders_log_start_starts_over_from_there() -> None:
    harness = FollowerHarness()
    harness.take(answer(records=batches(0, 0)))
    harness.take(answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7, high_watermark=9))
    log = harness.partition().log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 7, 7)
    assert harness.ask().last_fetched_epoch == -1
    harness.take(answer(records=batches(0, start=7), high_watermark=8, log_start=7))
    assert harness.end == 8


def test_an_implausible_out_of_range_error_deletes_no_records() -> None:
    harness = FollowerHarness()
    harness.take(answer(records=batches(0, 0)))
    harness.take(answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=-1))
    harness.clock.advance_ms(BACKOFF_MS)
    harness.take(answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=1))
    assert harness.end == 2


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_follower_backs_off_after_a_transient_error(error: ErrorCode) -> None:
    harness = FollowerHarness()
    harness.take(answer(error=error))
    assert harness.following.list_wanted(OTHER) == []
    assert harness.following.next_due_ms(OTHER) == FIRST_BACKOFF_MS
    assert harness.reports == []
    harness.clock.advance_ms(FIRST_BACKOFF_MS)
    assert harness.ask().offset == 0


def test_the_backoff_doubles_up_to_its_limit() -> None:
    harness = FollowerHarness()
    rests = []
    for _ in range(9):
        harness.take(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        due_ms = harness.following.next_due_ms(OTHER)
        assert due_ms is not None
        rests.append(due_ms - harness.clock.now_ms())
        harness.clock.advance_ms(rests[-1])
    assert rests == [20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS, BACKOFF_MS]
    harness.take(answer())
    harness.take(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert harness.following.next_due_ms(OTHER) == harness.clock.now_ms() + FIRST_BACKOFF_MS


def test_one_partition_backs_off_while_others_continue() -> None:
    harness = FollowerHarness()
    harness.leader_and_isr(P1, leader=OTHER, replicas=BOTH)
    first, second = harness.following.list_wanted(OTHER)
    harness.following.apply(OTHER, first, answer(error=ErrorCode.KAFKA_STORAGE_ERROR))
    assert [fetch_from.tp for fetch_from in harness.following.list_wanted(OTHER)] == [second.tp]
    (report,) = harness.reports
    assert "KAFKA_STORAGE_ERROR" in report


def test_a_corrupt_batch_backs_off_and_is_fetched_again() -> None:
    """KAFKA-4384, KAFKA-13149."""
    harness = FollowerHarness()
    broken = batches(0)
    broken[-1] ^= 1
    harness.take(answer(records=broken))
    assert harness.end == 0
    assert "CRC" in harness.reports[-1]
    harness.clock.advance_ms(BACKOFF_MS)
    harness.take(answer(records=batches(0)))
    assert harness.end == 1


def test_a_batch_below_the_log_end_is_refused() -> None:
    """KAFKA-3047."""
    harness = FollowerHarness()
    harness.take(answer(records=batches(0, 0)))
    harness.take(answer(records=batches(0, start=1)))
    assert harness.end == 2


def test_a_follower_of_a_synchronous_topic_flushes_before_it_fetches_again() -> None:
    harness = FollowerHarness(flush_messages="1")
    harness.take(answer(records=batches(0)))
    assert harness.following.list_wanted(OTHER) == []
    harness.news.clear()
    harness.background.drain()
    assert harness.news == [OTHER]
    assert harness.ask().offset == harness.partition().log.durable_offset == 1


def test_a_partition_that_stops_following_is_not_fetched() -> None:
    harness = FollowerHarness()
    harness.stop(P0, delete=False)
    assert harness.following.leaders == []
    harness.follow(1)
    harness.leader_and_isr(P0, leader=-1, replicas=BOTH, in_sync=BOTH, epoch=2)
    assert harness.following.leaders == []
    harness.leader_and_isr(P0, leader=ME, replicas=BOTH, in_sync=BOTH, epoch=3)
    assert harness.following.leaders == []


def test_a_config_change_does_not_restart_fetching() -> None:
    harness = FollowerHarness(retention_ms="1000")
    harness.news.clear()
    harness.update_topic(retention_ms="2000")
    assert harness.news == []
    assert harness.following.leaders == [OTHER]
