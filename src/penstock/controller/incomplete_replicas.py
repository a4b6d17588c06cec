"""Replicas that lost records while their broker was down, as their brokers report them.

Pure; `leader_election` has the rule for them. They are reported in a znode before the broker
registers, so that any controller knows them before it elects. A report is settled once its
partition has a leader or its broker is not in the ISR, because that decision has considered it.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import encode_report, report_path
from penstock.metadata_store.interface import SetData
from penstock.model.broker_report import NEVER_CREATED, NO_LOG, ReportedReplica
from penstock.model.cluster import NO_BROKER, BrokerId, PartitionState
from penstock.model.ids import TopicPartition

MESSAGES_AT_ONCE = 20


class IncompleteReplica(NamedTuple):
    broker: BrokerId
    tp: TopicPartition
    replica: ReportedReplica


def list_reported(state: ClusterState) -> list[TopicPartition]:
    """The partitions with a replica that is reported and in sync."""
    return list(
        dict.fromkeys(report.tp for report in list_all(state) if _is_in_sync(state, report))
    )


def settle_reports(decision: ControllerDecision) -> ControllerDecision:
    """The decision, and the writes that remove the reports that it settles.

    They come after its own writes: after a crash in between, the next controller decides the same.
    """
    state = decision.state
    settled = [report for report in list_all(state) if not _is_open(state, report)]
    if not settled:
        return decision
    after, writes = _without(state, settled)
    return ControllerDecision(
        state=after, writes=decision.writes + writes, requests=decision.requests
    )


def describe_settled(before: ClusterState, decided: ClusterState) -> Iterator[str]:
    """The log line of each reported replica; `decided` still has the reports that it settles."""
    for report in list_all(decided):
        partition = _find_partition(decided, report)
        if partition is None or _is_open(decided, report) or not _is_in_sync(before, report):
            continue
        if partition.leader == report.broker:
            yield (
                f"{report.tp}: broker {report.broker} leads although it has lost records: "
                f"{_describe(report)}; what came after is lost"
            )
        elif report.broker not in partition.in_sync:
            yield (
                f"{report.tp}: broker {report.broker} has lost records and leaves the ISR: "
                f"{_describe(report)}; it fetches them from leader {partition.leader}"
            )


def describe_open(state: ClusterState, partitions: Collection[TopicPartition]) -> Iterator[str]:
    """Why these partitions have no leader, and what an operator can do."""
    for tp in partitions:
        reports = [report for report in list_all(state) if report.tp == tp]
        lost = "; ".join(f"broker {report.broker}: {_describe(report)}" for report in reports)
        reported = {report.broker for report in reports}
        in_sync = state.topics[tp.topic].partitions[tp.partition].in_sync
        others = [str(broker) for broker in in_sync if broker not in reported]
        wait = f"start broker {' or '.join(others)}, or " if others else ""
        gone = [str(item.broker) for item in reports if item.replica.position == NO_LOG]
        back = f"bring the disk of broker {' or '.join(gone)} back and restart it, or "
        yield (
            f"{tp} has no leader, because in-sync replicas have lost records ({lost}); {wait}"
            f"{back if gone else ''}elect what is left with penstock cluster elect-leaders {tp} "
            f"--unclean"
        )


def list_all(state: ClusterState) -> Iterator[IncompleteReplica]:
    for broker, report in state.reports.items():
        for tp, replica in report.replicas.items():
            yield IncompleteReplica(broker, tp, replica)


def _find_partition(state: ClusterState, report: IncompleteReplica) -> PartitionState | None:
    """None if the topic is not the one that was reported."""
    topic = state.find_topic(report.tp.topic)
    if topic is None or topic.topic_id != report.replica.topic_id:
        return None
    is_there = report.tp.partition < len(topic.partitions)
    return topic.partitions[report.tp.partition] if is_there else None


def _is_in_sync(state: ClusterState, report: IncompleteReplica) -> bool:
    partition = _find_partition(state, report)
    return partition is not None and report.broker in partition.in_sync


def _is_open(state: ClusterState, report: IncompleteReplica) -> bool:
    partition = _find_partition(state, report)
    return (
        partition is not None
        and partition.leader == NO_BROKER
        and report.broker in partition.in_sync
    )


def _without(
    state: ClusterState, settled: Iterable[IncompleteReplica]
) -> tuple[ClusterState, tuple[WriteStep, ...]]:
    gone: dict[BrokerId, set[TopicPartition]] = {}
    for broker, tp, _ in settled:
        gone.setdefault(broker, set()).add(tp)
    reports, writes = dict(state.reports), []
    for broker, partitions in gone.items():
        report = reports.pop(broker)
        replicas = {tp: item for tp, item in report.replicas.items() if tp not in partitions}
        stored = replace(report, replicas=replicas, version=report.version + 1)
        data = encode_report(stored)
        writes.append((SetData(path=report_path(broker), data=data, version=report.version),))
        if replicas:
            reports[broker] = stored
    return replace(state, reports=reports), tuple(writes)


def _describe(report: IncompleteReplica) -> str:
    epoch, end_offset = report.replica.position
    if report.replica.position == NO_LOG:
        return "it has no log"
    if report.replica.position == NEVER_CREATED:
        return "its log was not created yet"
    return f"its log ends at offset {end_offset}, leader epoch {epoch}"
