"""When a write is acknowledged, and with which error code."""

from errno import EIO

import pytest
from tests.unit.replication.harness import (
    ME,
    OTHER,
    P0,
    P1,
    P2,
    THIRD,
    WALL_MS,
    ReplicationHarness,
    some_batch,
)

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.partition import Role
from penstock.storage.engine import AppendOrigin
from penstock.testing.simulated_disk import OperationKind

NONE = ErrorCode.NONE


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_write_to_a_single_replica_is_acknowledged_at_once_and_readable(acks: int) -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    first = harness.append(P0, acks=acks, records=3)
    second = harness.append(P0, acks=acks)
    assert first.waiting is None
    assert first.answer == [(NONE, 0, -1, 0, None, ())]
    assert second.answer == [(NONE, 3, -1, 0, None, ())]
    partition = harness.partition()
    assert (partition.high_watermark, partition.log_end_offset) == (4, 4)
    assert harness.background.rounds == []  # no flush was requested


def test_results_keep_the_order_of_batches_whatever_fails() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P2)
    unknown = TopicPartition("nowhere", 0)
    damaged = some_batch()
    damaged[-1] ^= 1
    sent = harness.append(unknown, P0, P1, P2)
    assert sent.codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NONE,
    ]
    assert [appended.base_offset for appended in sent.answer] == [-1, 0, -1, 0]
    [answer] = harness.append(P0, batch=damaged).answer
    assert answer[:4] == (ErrorCode.CORRUPT_MESSAGE, -1, -1, 0)
    assert "CRC" in (answer.message or "")


def test_a_topic_with_log_append_time_returns_it() -> None:
    harness = ReplicationHarness()
    harness.update_topic(message_timestamp_type="LogAppendTime")
    harness.leader_and_isr(P0)
    assert harness.append(P0).answer[0].log_append_time_ms == WALL_MS


@pytest.mark.parametrize("acks", [-2, 2, 32767])
def test_invalid_acks_append_nothing(acks: int) -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    assert harness.append(P0, acks=acks).codes == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert harness.partition().log_end_offset == 0


def test_only_coordinators_append_to_internal_topics() -> None:
    harness = ReplicationHarness()
    offsets = TopicPartition("__consumer_offsets", 0)
    harness.leader_and_isr(offsets)
    assert harness.append(offsets).codes == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert harness.append(offsets, origin=AppendOrigin.COORDINATOR).codes == [NONE]


def test_a_partition_of_another_broker_and_an_unknown_one_have_different_errors() -> None:
    harness = ReplicationHarness()
    harness.update_topic(partitions=2)
    assert harness.append(P0, P2).codes == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# -- followers -----------------------------------------------------------------------------


def test_acks_all_waits_for_the_slowest_in_sync_replica() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER, THIRD))
    sent = harness.append(P0, records=5)
    harness.follower_has(5, follower=OTHER)
    harness.follower_has(4, follower=THIRD)
    assert not sent.is_answered
    assert harness.partition().high_watermark == 4
    harness.follower_has(5, follower=THIRD)
    assert sent.answer == [(NONE, 0, -1, 0, None, ())]
    assert harness.partition().high_watermark == 5


def test_acks_one_does_not_wait_for_followers_but_readers_do() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    assert harness.append(P0, acks=1).codes == [NONE]
    assert harness.partition().high_watermark == 0


def test_a_follower_beyond_the_log_end_commits_nothing_more() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    harness.append(P0)
    harness.follower_has(1000)
    assert harness.partition().high_watermark == 1


def test_acks_all_does_not_wait_for_a_follower_outside_the_isr() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER), in_sync=(ME,))
    assert harness.append(P0).codes == [NONE]


def test_a_request_completes_when_its_last_partition_is_committed() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1, P2, replicas=(ME, OTHER))
    sent = harness.append(P0, P1, P2)
    for name in (P1, P2):
        harness.follower_has(1, name)
        assert not sent.is_answered
    harness.follower_has(1, P0)
    assert sent.codes == [NONE] * 3


def test_a_timeout_fails_only_uncommitted_partitions() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1, P2, replicas=(ME, OTHER))
    sent = harness.append(P0, P1, P2, timeout_ms=50)
    harness.follower_has(1, P1)
    harness.clock.advance_ms(49)
    assert not sent.is_answered
    harness.clock.advance_ms(1)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert sent.codes == [late, NONE, late]
    assert [appended.base_offset for appended in sent.answer] == [0, 0, 0]  # they are appended
    harness.follower_has(1, P0)
    assert len(sent.answers) == 1


def test_under_min_isr_refuses_acks_all_and_accepts_acks_one() -> None:
    harness = ReplicationHarness()
    harness.update_topic(min_insync_replicas="2")
    harness.leader_and_isr(P0, replicas=(ME, OTHER, THIRD), in_sync=(ME,))
    assert harness.append(P0, acks=-1).codes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert harness.partition().log_end_offset == 0
    assert harness.append(P0, acks=1).codes == [NONE]


def test_an_isr_that_shrinks_after_the_append_fails_the_write() -> None:
    harness = ReplicationHarness()
    harness.update_topic(min_insync_replicas="2")
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0)
    harness.leader_and_isr(P0, replicas=(ME, OTHER), in_sync=(ME,), partition_epoch=1)
    assert sent.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert sent.answer[0].base_offset == 0


def test_min_insync_replicas_is_capped_at_the_replica_count() -> None:
    harness = ReplicationHarness()
    harness.update_topic(min_insync_replicas="3")
    harness.leader_and_isr(P0)
    assert harness.append(P0).codes == [NONE]


def test_a_duplicate_waits_for_the_original_offsets() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    batch = some_batch(2, producer_id=9, sequence=0)
    first = harness.append(P0, batch=batch)
    again = harness.append(P0, batch=batch)
    later = harness.append(P0, batch=some_batch(1, producer_id=9, sequence=2))
    assert not first.is_answered
    assert not again.is_answered
    harness.follower_has(2)
    assert first.answer == again.answer == [(NONE, 0, -1, 0, None, ())]
    assert not later.is_answered
    assert harness.append(P0, batch=batch).codes == [NONE]  # committed before


# -- synchronous topics --------------------------------------------------------------------


def make_synchronous() -> ReplicationHarness:
    harness = ReplicationHarness()
    harness.update_topic(flush_messages="1")
    harness.leader_and_isr(P0, P1, P2)
    return harness


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_synchronous_write_is_acknowledged_and_readable_only_after_its_flush(acks: int) -> None:
    harness = make_synchronous()
    sent = harness.append(P0, P1, acks=acks)
    assert not sent.is_answered
    assert harness.partition().high_watermark == 0
    assert harness.background.run_one()
    assert harness.background.run_one()
    assert sent.codes == [NONE, NONE]
    assert harness.partition().high_watermark == harness.partition().log.durable_offset == 1


def test_a_single_synchronous_write_costs_one_flush() -> None:
    """Nobody could wait for a flush that storage began by itself."""
    harness = make_synchronous()
    sent = harness.append(P0)
    harness.background.drain()
    assert sent.is_answered
    assert harness.background.ran == 1


def test_synchronous_writes_during_a_flush_share_the_next() -> None:
    harness = make_synchronous()
    first = harness.append(P0)
    later = [harness.append(P0) for _ in range(10)]
    harness.background.run_one()
    assert first.is_answered
    assert not any(sent.is_answered for sent in later)
    harness.background.run_one()
    assert all(sent.is_answered for sent in later)
    assert harness.background.ran == 2


def test_a_synchronous_write_with_followers_waits_for_the_leaders_flush_too() -> None:
    harness = ReplicationHarness()
    harness.update_topic(flush_messages="1")
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0)
    harness.follower_has(1)
    assert not sent.is_answered
    harness.background.drain()
    assert sent.codes == [NONE]


def test_a_synchronous_write_with_acks_one_waits_for_the_leaders_flush_alone() -> None:
    harness = ReplicationHarness()
    harness.update_topic(flush_messages="1")
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0, acks=1)
    assert not sent.is_answered
    harness.background.drain()
    assert sent.codes == [NONE]
    assert harness.partition().high_watermark == 0


def test_a_synchronous_write_times_out_on_a_disk_that_hangs() -> None:
    harness = make_synchronous()
    sent = harness.append(P0, acks=1, timeout_ms=20)
    harness.clock.advance_ms(20)
    assert sent.codes == [ErrorCode.REQUEST_TIMED_OUT]
    harness.background.drain()
    assert len(sent.answers) == 1


def test_a_duplicate_of_a_synchronous_write_waits_for_the_flush() -> None:
    harness = make_synchronous()
    batch = some_batch(producer_id=9, sequence=0)
    harness.append(P0, acks=1, batch=batch)
    again = harness.append(P0, acks=1, batch=batch)
    assert not again.is_answered
    harness.background.drain()
    assert again.answer == [(NONE, 0, -1, 0, None, ())]


def test_flush_messages_above_one_is_left_to_storage() -> None:
    harness = ReplicationHarness()
    harness.update_topic(flush_messages="3")
    harness.leader_and_isr(P0)
    for _ in range(3):
        assert harness.append(P0).codes == [NONE]
    assert len(harness.background.rounds) == 1
    harness.background.drain()
    assert harness.partition().log.durable_offset == 3


def test_a_topic_that_stops_being_synchronous_completes_delayed_writes() -> None:
    harness = make_synchronous()
    sent = harness.append(P0)
    harness.update_topic()
    assert sent.codes == [NONE]


def test_a_topic_that_becomes_synchronous_is_flushed() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.append(P0, records=4)
    harness.update_topic(flush_messages="1")
    sent = harness.append(P0)
    assert not sent.is_answered
    harness.background.drain()
    assert sent.codes == [NONE]
    assert harness.partition().log.durable_offset == 5


# -- failed and cancelled writes -----------------------------------------------------------


def test_losing_leadership_fails_delayed_writes() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1, replicas=(ME, OTHER))
    sent = harness.append(P0, P1)
    harness.follower_has(1, P1)
    harness.leader_and_isr(P0, P1, leader=OTHER, epoch=1, replicas=(ME, OTHER))
    assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]  # P1 was committed before


def test_a_later_leadership_does_not_commit_writes_of_an_earlier_one() -> None:
    """Another leader in between may have replaced the record."""
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1, replicas=(ME, OTHER))
    sent = harness.append(P0, P1)
    harness.leader_and_isr(P0, leader=OTHER, epoch=1, replicas=(ME, OTHER))
    harness.leader_and_isr(P0, epoch=2, replicas=(ME, OTHER))
    harness.follower_has(1, P0)
    harness.follower_has(1, P1)
    assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]


def test_a_delayed_write_survives_a_later_epoch_of_the_same_leader() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0)
    harness.leader_and_isr(P0, epoch=1, replicas=(ME, OTHER))
    assert not sent.is_answered
    harness.follower_has(1)
    assert sent.codes == [NONE]


def test_losing_leadership_fails_delayed_writes_of_an_earlier_epoch() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0)
    harness.leader_and_isr(P0, epoch=1, replicas=(ME, OTHER))
    harness.leader_and_isr(P0, leader=OTHER, epoch=2, replicas=(ME, OTHER))
    assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("delete", [False, True])
def test_stop_replica_fails_delayed_writes(delete: bool) -> None:
    harness = make_synchronous()
    sent = harness.append(P0)
    assert harness.stop(P0, delete=delete) == {P0: NONE}
    assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    harness.background.drain()
    assert len(sent.answers) == 1


def test_a_cancelled_write_gets_no_response() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    sent = harness.append(P0)
    assert sent.waiting is not None
    assert harness.replicas.produce_purgatory.cancel(sent.waiting)
    harness.follower_has(1)
    harness.clock.advance_ms(5000)
    assert not sent.is_answered


def test_a_write_to_a_full_purgatory_times_out_at_once() -> None:
    harness = ReplicationHarness(max_delayed_operations=1)
    harness.leader_and_isr(P0, replicas=(ME, OTHER))
    first, second = harness.append(P0), harness.append(P0)
    assert not first.is_answered
    assert second.codes == [ErrorCode.REQUEST_TIMED_OUT]


# -- disk failures -------------------------------------------------------------------------


def test_a_failed_log_dir_affects_its_own_partitions_only() -> None:
    harness = ReplicationHarness(directories=("/d", "/e"))
    names = [TopicPartition("orders", number) for number in range(4)]
    harness.leader_and_isr(*names)
    homes = {log.tp: log.directory for log in harness.engine.statistics().logs}
    lost = [name for name in names if homes[name].startswith("/d")]
    assert 0 < len(lost) < 4
    harness.disk.fail_path("/d", EIO, {OperationKind.WRITE})
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    expected = [storage_error if name in lost else NONE for name in names]
    sent = harness.append(*names)
    assert sent.codes == expected
    assert all(
        appended.message is None for appended in sent.answer
    )  # clients get no details of the disk
    harness.disk.heal()
    assert harness.append(*names).codes == expected
    roles = {partition.tp: partition.role for partition in harness.replicas.statistics().partitions}
    assert [roles[name] for name in names] == [
        Role.NONE if name in lost else Role.LEADER for name in names
    ]


def test_a_failed_flush_fails_all_delayed_writes_of_that_disk() -> None:
    harness = make_synchronous()
    sent = [harness.append(P0), harness.append(P1, acks=1), harness.append(P0, P2)]
    harness.disk.fail_path("/d", EIO, {OperationKind.SYNC})
    harness.background.drain()
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert [item.codes for item in sent] == [[storage_error], [storage_error], [storage_error] * 2]
    assert harness.partition().high_watermark == 0
