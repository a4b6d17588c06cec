"""Resolving a job's scope to offsets, with a real broker."""

import json
from itertools import count

import pytest
from tests.unit.spark.source.source_log import Log

import penstock
from penstock.spark.connect.reachable import connect
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.audit import find_compacted, plan_audit
from penstock.spark.jobs.failures import JobRefused
from penstock.spark.jobs.scope import (
    Edge,
    EdgeKind,
    JobScope,
    ResolvedScope,
    parse_edge,
    parse_partitions,
    resolve_scope,
    source_options,
)

pytestmark = pytest.mark.xdist_group("spark-source")
_numbers = count(1)


@pytest.fixture
def log(penstock_broker: penstock.Broker) -> Log:
    log = Log(penstock_broker.bootstrap_servers, f"job-scope-{next(_numbers)}")
    log.create(partitions=2)
    log.write(0, [b"a", b"b", b"c"], time_ms=1_000)
    log.write(0, [b"d", b"e"], time_ms=2_000)
    log.write(1, [b"f"], time_ms=3_000)
    return log


def resolved_scope(
    log: Log, start: str = "earliest", end: str = "latest", partitions: str = "0,1"
) -> ResolvedScope:
    scope = JobScope(
        topics=(log.topic,),
        partitions=parse_partitions(partitions),
        start=parse_edge("--start", start),
        end=parse_edge("--end", end),
    )
    return resolve_scope(log.client, scope)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", [(0, 5), (0, 1)]),
        ("2", "4", [(2, 4), (1, 1)]),
        ("1970-01-01T00:00:02+00:00", "latest", [(3, 5), (0, 1)]),
        ("earliest", "1970-01-01T00:00:02", [(0, 3), (0, 0)]),
        ("latest", "earliest", [(5, 5), (1, 1)]),
        ("99", "latest", [(5, 5), (1, 1)]),
    ],
)
def test_edges_are_clamped_to_the_log(
    log: Log, start: str, end: str, expected: list[tuple[int, int]]
) -> None:
    assert [(span.start, span.end) for span in resolved_scope(log, start, end).ranges] == expected


def test_source_options_skip_empty_ranges(log: Log) -> None:
    options = source_options(log.servers, resolved_scope(log, "2", "4"))
    assert json.loads(options["assign"]) == {log.topic: [0]}
    assert json.loads(options["startingOffsets"]) == {log.topic: {"0": 2}}
    assert json.loads(options["endingOffsets"]) == {log.topic: {"0": 4}}


def test_audit_tasks_know_whether_they_are_first_and_the_high_watermark(log: Log) -> None:
    log.delete_records(0, 1)
    planned = plan_audit(resolved_scope(log), {log.topic: True}, 2)
    assert [(task.wanted[1:3], task.is_first, task.high_watermark) for task in planned] == [
        ((1, 3), True, 5),
        ((3, 5), False, 5),
        ((0, 1), True, 1),
    ]
    assert all(task.is_compacted for task in planned)


def test_compacted_topics_are_recognised(log: Log) -> None:
    other = Log(log.servers, f"{log.topic}-compacted")
    other.create(cleanup_policy="compact,delete")
    assert find_compacted(log.client, [log.topic, other.topic]) == {
        log.topic: False,
        other.topic: True,
    }


def test_missing_partitions_topics_and_brokers_are_reported(log: Log) -> None:
    with pytest.raises(
        ClusterNotReady, match=r"does not have job-scope-\d+-2: correct --partitions"
    ):
        resolved_scope(log, partitions="0,2")
    with pytest.raises(ClusterNotReady, match="penstock topic create no-such-topic"):
        resolve_scope(log.client, JobScope(("no-such-topic",)))
    with pytest.raises(ClusterNotReady, match="is the broker running"):
        connect("127.0.0.1:1")


def test_edges_are_offsets_times_or_keywords() -> None:
    assert parse_edge("--start", "17") == Edge(EdgeKind.OFFSET, 17)
    assert parse_edge("--start", "latest") == Edge(EdgeKind.LATEST)
    assert parse_edge("--end", "1970-01-01T01:00:01+01:00") == Edge(EdgeKind.TIME, 1_000)
    with pytest.raises(JobRefused, match="--end 'soon': write an offset, a time"):
        parse_edge("--end", "soon")
    with pytest.raises(JobRefused, match="--partitions"):
        parse_partitions("0,x")
