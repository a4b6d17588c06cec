"""LeaderAndIsr and StopReplica requests: roles, refusals, creation and deletion."""

from errno import EIO
from uuid import UUID

import pytest
from tests.unit.replication.harness import (
    ME,
    ORDERS_ID,
    OTHER,
    P0,
    P1,
    P2,
    THIRD,
    ReplicationHarness,
)

from penstock.config.log_config import LogConfig
from penstock.logs.event_logger import message_logger
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.replication.partition import FetchIsolation, Role
from penstock.replication.topic_config import resolve_topic_config
from penstock.storage.partition_metadata import PARTITION_METADATA_FILE
from penstock.testing.simulated_disk import OperationKind

NONE = ErrorCode.NONE
ANEW = TopicId(UUID(int=8))
BOTH = (ME, OTHER)


def refusal_of_reading(
    harness: ReplicationHarness, name: TopicPartition = P0, epoch: int = -1
) -> ErrorCode:
    with pytest.raises(Refusal) as caught:
        harness.replicas.get(name).check_leader(epoch)
    return caught.value.code


# -- roles ---------------------------------------------------------------------------------


def test_a_new_leader_has_an_empty_log_with_its_epoch() -> None:
    harness = ReplicationHarness()
    assert harness.leader_and_isr(P0, epoch=3) == {P0: NONE}
    partition = harness.partition()
    partition.check_leader()
    partition.check_leader(3)
    assert partition.role is Role.LEADER
    assert partition.leader_epoch == partition.log.latest_epoch == 3
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 0)


def test_records_have_the_epoch_they_were_written_in() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, epoch=1)
    harness.append(P0, records=2)
    harness.leader_and_isr(P0, epoch=4)
    harness.append(P0)
    log = harness.partition().log
    ends = [log.find_epoch_end(LeaderEpoch(epoch)) for epoch in (1, 4)]
    assert [(end.epoch, end.end_offset) for end in ends if end] == [(1, 2), (4, 3)]


def test_clients_are_fenced_by_their_leader_epoch() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, epoch=5)
    assert refusal_of_reading(harness, epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal_of_reading(harness, epoch=6) is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("leader", [OTHER, -1])
def test_a_follower_refuses_clients(leader: int) -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, leader=leader, replicas=BOTH)
    assert refusal_of_reading(harness) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.append(P0).codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(Refusal) as caught:
        harness.replicas.delete_records(P0, Offset(-1))
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_follows_and_leads_again_accepts_writes_again() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH, in_sync=(ME,))
    harness.append(P0)
    harness.leader_and_isr(P0, leader=OTHER, epoch=1, replicas=BOTH)
    assert harness.partition().role is Role.FOLLOWER
    harness.leader_and_isr(P0, epoch=2, replicas=BOTH, in_sync=(ME,))
    assert harness.append(P0).answer[0].base_offset == 1


def test_a_broker_that_is_no_replica_creates_no_log() -> None:
    harness = ReplicationHarness()
    assert harness.leader_and_isr(P0, leader=OTHER, replicas=(OTHER,)) == {
        P0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert harness.replicas.find(P0) is None
    assert harness.engine.statistics().logs == ()


# -- stale requests ------------------------------------------------------------------------


def test_an_older_leader_epoch_is_refused_for_its_partition_only() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, epoch=5)
    assert harness.leader_and_isr(P0, P1, leader=OTHER, epoch=4, replicas=BOTH) == {
        P0: ErrorCode.STALE_CONTROLLER_EPOCH,
        P1: NONE,
    }
    assert harness.partition().leader_epoch == 5
    assert harness.partition().is_leader


def test_a_leader_epoch_older_than_the_logs_records_is_refused() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, epoch=5)
    harness.append(P0)
    harness.background.drain()
    harness.engine.close()
    later = ReplicationHarness(harness.disk)
    assert later.leader_and_isr(P0, epoch=4) == {P0: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert later.leader_and_isr(P0, epoch=5) == {P0: NONE}


def test_an_older_partition_epoch_is_refused() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH, partition_epoch=2)
    assert harness.leader_and_isr(P0, replicas=BOTH, in_sync=(ME,), partition_epoch=1) == {
        P0: ErrorCode.STALE_CONTROLLER_EPOCH
    }
    assert harness.partition().state.in_sync == BOTH


def test_a_repeated_leader_and_isr_request_is_harmless() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH)
    sent = harness.append(P0)
    harness.follower_has(0)
    assert harness.leader_and_isr(P0, replicas=BOTH) == {P0: NONE}
    assert not sent.is_answered
    harness.follower_has(1)
    assert sent.codes == [NONE]


def test_a_growing_isr_does_not_lower_the_high_watermark() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH, in_sync=(ME,))
    harness.append(P0)
    harness.leader_and_isr(P0, replicas=BOTH, partition_epoch=1)
    assert harness.partition().high_watermark == 1
    sent = harness.append(P0)
    assert not sent.is_answered


def test_an_isr_change_keeps_the_progress_of_remaining_followers() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=(*BOTH, THIRD))
    sent = harness.append(P0)
    harness.follower_has(1)
    harness.leader_and_isr(P0, replicas=(*BOTH, THIRD), in_sync=BOTH, partition_epoch=1)
    assert sent.codes == [NONE]


def test_a_new_leader_epoch_resets_follower_progress() -> None:
    """A follower may have truncated its log at the start of the epoch."""
    harness = ReplicationHarness()
    replicas = (*BOTH, THIRD)
    harness.leader_and_isr(P0, replicas=replicas)
    sent = harness.append(P0)
    harness.follower_has(1, follower=OTHER)
    harness.leader_and_isr(P0, epoch=1, replicas=replicas)
    harness.follower_has(1, follower=THIRD)
    assert not sent.is_answered
    harness.follower_has(1, follower=OTHER)
    assert sent.codes == [NONE]


# -- deletion and recreated topics ---------------------------------------------------------


def test_a_deleted_replica_loses_its_data() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1)
    harness.append(P0)
    assert harness.stop(P0, delete=True) == {P0: NONE}
    assert harness.replicas.find(P0) is None
    assert [log.tp for log in harness.engine.statistics().logs] == [P1]
    assert harness.stop(P0, delete=True) == {P0: NONE}  # deletion is idempotent


def test_a_stopped_replica_keeps_its_data_and_refuses_clients() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.append(P0)
    assert harness.stop(P0, delete=False) == {P0: NONE}
    assert refusal_of_reading(harness) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.partition().role is Role.NONE
    harness.leader_and_isr(P0, epoch=1, is_new=False)
    assert harness.partition().high_watermark == 1


def test_a_recreated_topic_starts_empty() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH, epoch=6)
    sent = harness.append(P0)
    assert harness.leader_and_isr(P0, topic_id=ANEW) == {P0: NONE}  # though its epochs start again
    assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition = harness.partition()
    assert (partition.topic_id, partition.leader_epoch, partition.log_end_offset) == (ANEW, 0, 0)
    assert harness.append(P0).answer == [(NONE, 0, -1, 0, None, ())]


def test_a_topic_recreated_while_the_broker_was_down_starts_empty() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1)
    harness.append(P0, P1)
    harness.engine.close()
    later = ReplicationHarness(harness.disk)
    later.leader_and_isr(P0, topic_id=ANEW, is_new=False)
    later.leader_and_isr(P1, is_new=False)
    assert later.partition(P0).log_end_offset == 0
    assert later.partition(P1).log_end_offset == 1
    assert any("created again" in report for report in later.reports)


def test_a_log_without_topic_id_takes_it_from_the_request() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.append(P0)
    harness.engine.close()
    harness.disk.unlink(f"/d/orders-0/{PARTITION_METADATA_FILE}")
    later = ReplicationHarness(harness.disk)
    later.leader_and_isr(P0, is_new=False)
    assert later.partition().topic_id == ORDERS_ID
    assert later.partition().log_end_offset == 1
    assert later.leader_and_isr(P0, topic_id=ANEW, epoch=1) == {P0: NONE}
    assert later.partition().log_end_offset == 0


# -- after a restart -----------------------------------------------------------------------


def test_a_recovered_log_has_no_role_until_leader_and_isr() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.append(P0, records=3)
    harness.engine.close()
    later = ReplicationHarness(harness.disk)
    assert refusal_of_reading(later) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    later.leader_and_isr(P0, epoch=1, is_new=False)
    assert later.partition().readable_end(FetchIsolation.READ_UNCOMMITTED) == 3


def test_a_log_keeps_its_config_until_metadata_has_its_topic() -> None:
    """LeaderAndIsr comes before UpdateMetadata; in between, no guarantee may be weaker."""
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.engine.close()
    rules = resolve_topic_config(
        "orders", {"flush.messages": "1"}, harness.settings, message_logger(harness.reports.append)
    )
    later = ReplicationHarness(harness.disk, opened_as=rules.log)
    later.leader_and_isr(P0, epoch=1, is_new=False)
    sent = later.append(P0)
    assert not sent.is_answered
    later.background.drain()
    assert sent.codes == [NONE]
    assert later.background.ran == 1


# -- disk failures -------------------------------------------------------------------------


def test_a_replica_on_a_failed_disk_is_offline_until_the_disk_is_back() -> None:
    harness = ReplicationHarness(directories=("/d", "/e"))
    harness.leader_and_isr(P0, P1)
    harness.engine.close()
    harness.disk.fail_path("/d", EIO, set(OperationKind))
    later = ReplicationHarness(harness.disk, directories=("/d", "/e"))
    [result] = [log.tp for log in later.engine.statistics().logs]
    lost = P1 if result == P0 else P0
    answers = later.leader_and_isr(P0, P1, epoch=1, is_new=False)
    assert answers == {result: NONE, lost: ErrorCode.KAFKA_STORAGE_ERROR}
    with pytest.raises(Refusal) as caught:
        later.replicas.get(lost)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert later.append(lost).codes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert later.stop(lost, delete=True) == {lost: ErrorCode.KAFKA_STORAGE_ERROR}
    assert later.replicas.statistics().offline == (lost,)
    assert later.leader_and_isr(P2) == {P2: NONE}  # it is new, so no record can be lost


def test_a_replica_whose_log_failed_takes_no_role() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1)
    harness.disk.fail_path("/d", EIO, {OperationKind.WRITE})
    harness.append(P0)
    assert harness.leader_and_isr(P1, epoch=1) == {P1: ErrorCode.KAFKA_STORAGE_ERROR}
    assert refusal_of_reading(harness, P1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_failure_in_a_background_job_is_handled() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.disk.fail_path("/d", EIO, set(OperationKind))
    for job in (*harness.engine.due_jobs(0), *harness.engine.due_jobs(10**9)):
        job.run(lambda function: function())
    harness.replicas.handle_log_failures()
    assert refusal_of_reading(harness) is ErrorCode.KAFKA_STORAGE_ERROR


# -- DeleteRecords -------------------------------------------------------------------------


def test_records_are_deleted_up_to_the_high_watermark_at_most() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH)
    harness.append(P0, acks=1, records=10)
    harness.follower_has(6)
    assert harness.replicas.delete_records(P0, Offset(4)) == 4
    assert harness.replicas.delete_records(P0, Offset(2)) == 4  # never moves back
    for before in (7, -2):
        with pytest.raises(Refusal) as caught:
            harness.replicas.delete_records(P0, Offset(before))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert harness.replicas.delete_records(P0, Offset(-1)) == 6
    assert harness.partition().log_start_offset == 6


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", None), ("delete", None)],
)
def test_only_topics_with_cleanup_policy_delete_allow_delete_records(
    policy: str, code: ErrorCode | None
) -> None:
    harness = ReplicationHarness()
    harness.update_topic(cleanup_policy=policy)
    harness.leader_and_isr(P0)
    harness.append(P0)
    if code is None:
        assert harness.replicas.delete_records(P0, Offset(1)) == 1
        return
    with pytest.raises(Refusal) as caught:
        harness.replicas.delete_records(P0, Offset(1))
    assert caught.value.code is code


def test_internal_and_unknown_topics_refuse_delete_records() -> None:
    harness = ReplicationHarness()
    offsets = TopicPartition("__consumer_offsets", 0)
    harness.leader_and_isr(offsets)
    for name, code in (
        (offsets, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (P0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(Refusal) as caught:
            harness.replicas.delete_records(name, Offset(0))
        assert caught.value.code is code


# -- delayed fetches, configs, statistics --------------------------------------------------


class DelayedReader:
    """Waits until records above an offset can be read, or its own offset no longer can."""

    def __init__(
        self, harness: ReplicationHarness, name: TopicPartition, at: int, above: int = 0
    ) -> None:
        self._harness = harness
        self._name = name
        self._at = at
        self._above = max(at, above)
        self.ending: str | None = None
        harness.replicas.fetch_purgatory.try_complete_else_watch(self, [name], 10_000)

    def is_satisfied(self) -> bool:
        result = self._harness.replicas.find(self._name)
        if result is None or not result.is_leader or result.log_start_offset > self._at:
            return True
        return result.readable_end(FetchIsolation.READ_UNCOMMITTED) > self._above

    def complete(self) -> None:
        self.ending = "completed"

    def expire(self) -> None:
        self.ending = "expired"


def test_a_delayed_fetch_completes_on_commit_not_on_append() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1, replicas=BOTH)
    harness.leader_and_isr(P2)
    reader, elsewhere, alone = (
        DelayedReader(harness, P0, 0),
        DelayedReader(harness, P1, 0),
        DelayedReader(harness, P2, 0),
    )
    harness.append(P0, P2, acks=1)
    assert (reader.ending, alone.ending) == (None, "completed")
    harness.follower_has(1)
    assert (reader.ending, elsewhere.ending) == ("completed", None)


@pytest.mark.parametrize("what", ["follow", "stop", "delete", "anew", "fail"])
def test_a_delayed_fetch_completes_when_the_role_changes(what: str) -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, P1)
    reader = DelayedReader(harness, P0, 0)
    if what == "follow":
        harness.leader_and_isr(P0, leader=OTHER, epoch=1, replicas=BOTH)
    elif what == "anew":
        harness.leader_and_isr(P0, topic_id=ANEW)
    elif what == "fail":
        harness.disk.fail_path("/d/orders-1", EIO, {OperationKind.WRITE})
        harness.append(P1)
    else:
        harness.stop(P0, delete=what == "delete")
    assert reader.ending == "completed"


def test_a_delayed_fetch_completes_when_its_records_are_deleted() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0)
    harness.append(P0, records=5)
    reader = DelayedReader(harness, P0, 2, above=100)
    harness.replicas.delete_records(P0, Offset(2))
    assert reader.ending is None
    harness.replicas.delete_records(P0, Offset(3))
    assert reader.ending == "completed"


def test_a_topic_config_change_reaches_its_partitions() -> None:
    harness = ReplicationHarness()
    harness.update_topic(min_insync_replicas="2", retention_ms="60000")
    harness.leader_and_isr(P0, replicas=BOTH, in_sync=(ME,))
    assert harness.partition().log.config.retention_ms == 60_000
    assert harness.append(P0).codes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    harness.update_topic(retention_ms="70000")
    assert harness.partition().log.config.retention_ms == 70_000
    assert harness.append(P0).codes == [NONE]


def test_broker_settings_are_the_current_topic_defaults() -> None:
    harness = ReplicationHarness(broker={"min.insync.replicas": "2", "log.retention.ms": "1000"})
    harness.update_topic(retention_ms="60000")
    harness.leader_and_isr(P0, replicas=BOTH, in_sync=(ME,))
    assert harness.append(P0).codes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    harness.settings = ReplicationHarness().settings
    harness.replicas.reconfigure_all()
    assert harness.append(P0).codes == [NONE]
    assert harness.partition().log.config.retention_ms == 60_000


def test_a_recreated_topic_has_none_of_its_old_config() -> None:
    harness = ReplicationHarness()
    harness.update_topic(retention_ms="60000")
    harness.leader_and_isr(P0)
    harness.stop(P0, delete=True)
    harness.forget_topic()
    harness.leader_and_isr(P0, topic_id=ANEW)
    assert harness.partition().log.config.retention_ms == LogConfig().retention_ms
    harness.update_topic(retention_ms="70000")
    assert harness.partition().log.config.retention_ms == 70_000


def test_invalid_topic_overrides_are_reported_and_ignored() -> None:
    harness = ReplicationHarness()
    harness.update_topic(retention_ms="soon")
    harness.leader_and_isr(P0)
    assert harness.append(P0).codes == [NONE]
    assert any("retention.ms" in report for report in harness.reports)


def test_statistics_show_every_partition() -> None:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, replicas=BOTH, epoch=2)
    harness.leader_and_isr(P1, leader=OTHER, replicas=BOTH, in_sync=(OTHER,), epoch=3)
    harness.append(P0, records=5)
    harness.follower_has(3)
    harness.replicas.delete_records(P0, Offset(1))
    statistics = harness.replicas.statistics()
    led, followed = sorted(statistics.partitions, key=lambda partition: partition.tp)
    assert (led.role, led.leader, led.leader_epoch) == (Role.LEADER, ME, 2)
    assert (
        led.log_start_offset,
        led.last_stable_offset,
        led.high_watermark,
        led.log_end_offset,
    ) == (1, 3, 3, 5)
    assert (led.in_sync, led.replicas, led.failure) == (BOTH, BOTH, None)
    assert (followed.role, followed.leader, followed.in_sync) == (Role.FOLLOWER, OTHER, (OTHER,))
    assert statistics.produces.delayed == 1
