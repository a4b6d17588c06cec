"""Which replicas lost records while the broker was down, according to its disks."""

from uuid import UUID

from penstock.model.broker_report import NEVER_CREATED, NO_LOG, LogPosition, ReportedReplica
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.server.replica_check import (
    MESSAGES_AT_ONCE,
    OpenedLog,
    describe_damaged,
    find_damaged,
    find_outdated,
    merge_reports,
)
from penstock.storage.engine import NO_TOPIC_ID

TP = TopicPartition("t", 0)
ID, OTHER_ID = TopicId(UUID(int=7)), TopicId(UUID(int=8))
ASSIGNED = {TP: ID}
END = LogPosition(LeaderEpoch(2), Offset(40))
EMPTY = LogPosition(NO_LEADER_EPOCH, Offset(0))


def opened(
    topic_id: TopicId = ID, directory: str = "/a", position: LogPosition = END
) -> dict[TopicPartition, OpenedLog]:
    return {TP: OpenedLog(topic_id, directory, position)}


def damaged_position(
    logs: dict[TopicPartition, OpenedLog],
    *,
    missing: tuple[TopicPartition, ...] = (),
    short: dict[TopicPartition, Offset] | None = None,
    failed: tuple[str, ...] = (),
    outdated: tuple[str, ...] = (),
) -> LogPosition | None:
    damaged = find_damaged(
        ASSIGNED, logs, missing=missing, short=short or {}, failed=failed, outdated=outdated
    )
    return damaged[TP].replica.position if TP in damaged else None


def test_a_log_that_reaches_its_high_watermark_is_complete() -> None:
    assert damaged_position(opened()) is None
    assert damaged_position(opened(NO_TOPIC_ID)) is None


def test_an_assigned_replica_without_a_log_is_missing() -> None:
    assert damaged_position({}, missing=(TP,)) == NO_LOG
    assert damaged_position({}, failed=("/b",)) == NO_LOG
    assert damaged_position({}, outdated=("/a",)) == NO_LOG


def test_a_log_without_a_checkpoint_on_the_same_disks_was_never_created() -> None:
    assert damaged_position({}) == NEVER_CREATED


def test_the_log_of_a_deleted_topic_with_the_same_name_is_ignored() -> None:
    assert damaged_position(opened(OTHER_ID)) == NO_LOG


def test_a_log_that_ends_below_its_high_watermark_has_lost_records() -> None:
    assert damaged_position(opened(), short={TP: Offset(50)}) == END


def test_every_log_of_an_outdated_directory_is_suspect() -> None:
    assert damaged_position(opened(), outdated=("/a",)) == END
    assert damaged_position(opened(), outdated=("/b",)) is None


def test_a_damaged_log_without_records_counts_as_missing() -> None:
    """Its folder exists, but every segment is gone."""
    empty = opened(position=EMPTY)
    assert damaged_position(empty, short={TP: Offset(50)}) == NO_LOG
    assert damaged_position(empty, outdated=("/a",)) == NO_LOG
    assert damaged_position(empty) is None


def test_a_log_that_is_not_assigned_is_ignored() -> None:
    assert (
        find_damaged({}, opened(), missing=(), short={TP: Offset(50)}, failed=(), outdated=("/a",))
        == {}
    )


def test_a_directory_is_outdated_if_it_missed_the_latest_registration() -> None:
    assert find_outdated({"/a": 5, "/b": 4, "/c": 0, "/d": 6}, latest=5) == ["/b", "/c"]
    assert find_outdated({"/a": 0}, latest=0) == []


def test_a_report_stays_until_the_controller_removes_it() -> None:
    """The replica has an empty log by now, which does not change the report."""
    earlier = {TP: ReportedReplica(ID, NO_LOG)}
    empty = opened(position=EMPTY)
    assert merge_reports(earlier, {}, ASSIGNED, empty) == earlier
    short = find_damaged(
        ASSIGNED, empty, missing=(), short={TP: Offset(50)}, failed=(), outdated=()
    )
    assert merge_reports(earlier, short, ASSIGNED, empty) == earlier


def test_a_log_that_was_found_again_replaces_the_report_of_no_log() -> None:
    """The disk is mounted again, and outdated if the broker registered without it."""
    earlier = {TP: ReportedReplica(ID, NO_LOG)}
    expected = {TP: ReportedReplica(ID, END)}
    assert merge_reports(earlier, {}, ASSIGNED, opened()) == expected
    damaged = find_damaged(ASSIGNED, opened(), missing=(), short={}, failed=(), outdated=("/a",))
    assert merge_reports(earlier, damaged, ASSIGNED, opened()) == expected


def test_a_missing_log_stays_missing_after_a_registration_with_an_empty_disk() -> None:
    """The empty disk then belongs to the latest registration."""
    damaged = find_damaged(ASSIGNED, {}, missing=(), short={}, failed=(), outdated=())
    for before in (NO_LOG, END):
        earlier = {TP: ReportedReplica(ID, before)}
        assert merge_reports(earlier, damaged, ASSIGNED, {})[TP].position == NO_LOG


def test_a_log_created_empty_after_its_report_is_still_reported_as_new() -> None:
    new = {TP: ReportedReplica(ID, NEVER_CREATED)}
    assert merge_reports(new, {}, ASSIGNED, opened(position=EMPTY)) == new
    damaged = find_damaged(ASSIGNED, {}, missing=(), short={}, failed=(), outdated=())
    assert merge_reports(new, damaged, ASSIGNED, {}) == new
    lost = find_damaged(ASSIGNED, {}, missing=(TP,), short={}, failed=(), outdated=())
    assert merge_reports(new, lost, ASSIGNED, {})[TP].position == NO_LOG


def test_an_earlier_report_of_a_short_log_is_updated_with_its_current_end() -> None:
    earlier = {TP: ReportedReplica(ID, END._replace(end_offset=Offset(3)))}
    assert merge_reports(earlier, {}, ASSIGNED, opened()) == {TP: ReportedReplica(ID, END)}


def test_reports_of_deleted_topics_are_dropped() -> None:
    earlier = {TP: ReportedReplica(OTHER_ID, NO_LOG)}
    assert merge_reports(earlier, {}, ASSIGNED, opened()) == {}


def test_many_lost_replicas_are_logged_in_a_few_lines() -> None:
    assigned = {TopicPartition("t", number): ID for number in range(100)}
    lines = list(
        describe_damaged(find_damaged(assigned, {}, missing=(), short={}, failed=(), outdated=()))
    )
    assert len(lines) == MESSAGES_AT_ONCE + 1
    assert lines[0].startswith("t-0 lacks records: ")
    assert lines[-1] == f"{100 - MESSAGES_AT_ONCE} more partitions lack records"
