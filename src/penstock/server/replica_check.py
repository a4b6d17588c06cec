"""Finds the replicas that have lost records while the broker was down: before it registers.

Pure. Three signs: an assigned replica without a log; a log that ends below its checkpointed high
watermark; and a log directory that is not the one of the latest registration (swapped, or an older
copy), which makes all its logs suspect. A replica that is wrongly suspected only fetches again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.model.broker_report import NEVER_CREATED, NO_LOG, LogPosition, ReportedReplica
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.storage.engine import NO_TOPIC_ID

MESSAGES_AT_ONCE = 20


class OpenedLog(NamedTuple):
    """A log as recovery has opened it."""

    topic_id: TopicId
    directory: str
    position: LogPosition


class DamagedReplica(NamedTuple):
    replica: ReportedReplica
    reason: str


Damaged = Mapping[TopicPartition, DamagedReplica]


def find_damaged(
    assigned: Mapping[TopicPartition, TopicId],
    logs: Mapping[TopicPartition, OpenedLog],
    *,
    missing: Collection[TopicPartition],
    short: Mapping[TopicPartition, Offset],
    failed: Collection[str],
    outdated: Collection[str],
) -> dict[TopicPartition, DamagedReplica]:
    """Checkpoints name `missing`, which have no log; `short` has the checkpointed high watermarks
    of logs that end below; `failed` are the directories that cannot be used, `outdated` those
    without the latest incarnation."""
    damaged: dict[TopicPartition, DamagedReplica] = {}
    for tp, topic_id in assigned.items():
        log = logs.get(tp)
        reason = _find_reason(log, topic_id, short.get(tp), outdated)
        if reason is not None:
            # If all disks are those of the latest registration, a log that is in no checkpoint
            # was not there: its creation was cut short.
            is_lost = log is not None or tp in missing or failed or outdated
            position = _find_position(log, topic_id) if is_lost else NEVER_CREATED
            damaged[tp] = DamagedReplica(ReportedReplica(topic_id, position), reason)
    return damaged


def merge_reports(
    earlier: Mapping[TopicPartition, ReportedReplica],
    damaged: Damaged,
    assigned: Mapping[TopicPartition, TopicId],
    logs: Mapping[TopicPartition, OpenedLog],
) -> dict[TopicPartition, ReportedReplica]:
    """Findings of an earlier start stay until the controller removes them, with the log's position
    as of now: an empty log may have been created since, or a disk is back. Findings on replicas of
    deleted topics, or not assigned any more, are dropped."""
    merged = {tp: item.replica for tp, item in damaged.items()}
    for tp, (topic_id, before) in earlier.items():
        if assigned.get(tp) != topic_id:
            continue
        now = merged[tp].position if tp in merged else _find_position(logs.get(tp), topic_id)
        if not now.has_records:
            # Once the broker has registered with an empty disk, that is the disk of the latest
            # registration: only the earlier report shows that a log is gone.
            is_new = before == NEVER_CREATED and (now == NEVER_CREATED or tp not in damaged)
            now = NEVER_CREATED if is_new else NO_LOG
        merged[tp] = ReportedReplica(topic_id, now)
    return merged


def find_outdated(incarnations: Mapping[str, int], *, latest: int) -> list[str]:
    """Directories that missed the latest registration. A directory is written before the store, so
    that one with a higher number has missed nothing."""
    return [directory for directory, number in incarnations.items() if number < latest]


def describe_damaged(damaged: Damaged) -> Iterable[str]:
    for tp, (_, reason) in list(damaged.items())[:MESSAGES_AT_ONCE]:
        yield f"{tp} lacks records: {reason}"
    unsaid = len(damaged) - MESSAGES_AT_ONCE
    if unsaid > 0:
        yield f"{unsaid} more partitions lack records"


def _find_reason(
    log: OpenedLog | None,
    topic_id: TopicId,
    high_watermark: Offset | None,
    outdated: Collection[str],
) -> str | None:
    if log is None or _is_other(log, topic_id):
        return "it is assigned to this broker, which has no log of it"
    end_offset = log.position.end_offset
    if log.directory in outdated:
        return (
            f"its log ends at {end_offset} in {log.directory}, which is an older copy: it was not "
            f"there when this broker last registered"
        )
    if high_watermark is not None:
        return f"its log ends at {end_offset}, below its high watermark {high_watermark}"
    return None


def _find_position(log: OpenedLog | None, topic_id: TopicId) -> LogPosition:
    """A log without any record must not lead before a replica that has some."""
    if log is None or _is_other(log, topic_id) or not log.position.has_records:
        return NO_LOG
    return log.position


def _is_other(log: OpenedLog, topic_id: TopicId) -> bool:
    """Whether it is the log of a deleted topic with the same name."""
    return log.topic_id not in (NO_TOPIC_ID, topic_id)
