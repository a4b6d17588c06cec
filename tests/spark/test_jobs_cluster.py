"""Jobs and tables on three brokers, one of which is killed while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.profile import scaled
from tests.spark.synced_tables import open_synced, positions_of, read_table
from tests.spark.topics import Sent, create_topic, send
from tests.spark.written import read_records

from penstock.spark.connect.reachable import connect
from penstock.spark.jobs.audit import Audit, run_audit
from penstock.spark.jobs.replay import Replay, run_replay
from penstock.spark.jobs.running import JobProgress, JobWatch
from penstock.spark.jobs.scope import Edge, EdgeKind, JobScope
from penstock.spark.jobs.stats import Stats, run_stats
from penstock.spark.tables.spark_runner import SparkRunner
from penstock.spark.tables.spec import TableFormat
from penstock.testing import Cluster

pytestmark = pytest.mark.skipif(
    not scaled(test=0, verify=1, release=1), reason="starts three brokers: in the long form"
)
PARTITIONS = 3
RECORDS = 60_000
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": False,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, topic_name: str) -> Iterator[str]:
    """A topic of which each broker leads a partition; afterwards all brokers run again."""
    create_topic(cluster.bootstrap_servers, topic_name, partitions=PARTITIONS)
    records = (Sent(b"value %d" % n, b"k%d" % (n % 97), n % PARTITIONS) for n in range(RECORDS))
    send(cluster.bootstrap_servers, topic_name, records)
    yield topic_name
    for broker in {1, 2, 3} - set(cluster.running):
        cluster.start(broker)
    for partition in range(PARTITIONS):
        cluster.wait_in_sync(topic_name, partition, 3)


class KillsLeader:
    """A watch that kills the leader of partition 0 once some tasks, but not all, are done."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.steps_when_killed: list[str] = []
        self._cluster = cluster
        self._leader = cluster.leader(topic, 0)
        self.watch = JobWatch(stop=threading.Event(), show=self._show)

    def _show(self, progress: JobProgress) -> None:
        if not self.steps_when_killed and 0 < progress.done < progress.tasks:
            self.steps_when_killed.append(progress.step)
            self._cluster.kill(self._leader)


def test_audit_is_complete_when_a_broker_is_killed(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    killed = KillsLeader(cluster, topic)
    options = Audit(scope=JobScope((topic,)), range_offsets=250)
    result = run_audit(spark, connect(cluster.bootstrap_servers), options, killed.watch)
    assert killed.steps_when_killed == ["check batches"]
    assert result.findings == []
    assert result.records == RECORDS


def test_replay_and_stats_are_complete_when_a_broker_is_killed(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    """Some records are copied first, because creating the target needs three brokers."""
    servers, target = cluster.bootstrap_servers, f"{topic}.copy"
    head = JobScope((topic,), end=Edge(EdgeKind.OFFSET, 10))
    first = Replay(scope=head, target=target, creates_target=True, keeps_partitions=True)
    assert run_replay(spark, connect(servers), first, silent()).written == 10 * PARTITIONS
    cluster.kill(cluster.leader(topic, 1))
    rest = JobScope((topic,), start=Edge(EdgeKind.OFFSET, 10))
    options = Replay(scope=rest, target=target, keeps_partitions=True)
    written = run_replay(spark, connect(servers), options, silent()).written
    assert written == RECORDS - 10 * PARTITIONS
    copied, whole = read_records(servers, target), read_records(servers, topic)
    assert [record.value for record in copied[1]] == [record.value for record in whole[1]]
    (stats,) = run_stats(spark, connect(servers), Stats(scope=JobScope((topic,))), silent()).topics
    assert (stats.records, stats.keys) == (RECORDS, 97)


def silent() -> JobWatch:
    return JobWatch(stop=threading.Event(), show=lambda _: None)


def test_table_has_every_record_once_when_a_broker_is_killed(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    on_spark = SparkRunner(spark)
    batches: list[int] = []

    def run_tasks(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        batches.append(len(tasks))
        if len(batches) == 2:
            cluster.kill(cluster.leader(topic, 2))
        return on_spark(work, tasks)

    table = open_synced(
        cluster,
        tmp_path,
        topic,
        run_tasks=run_tasks,
        most_records=RECORDS // 4,
        task_records=RECORDS,
        options={"format": "delta"},
    )
    assert sum(progress.rows for progress in table.drain()) == RECORDS
    rows = read_table(tmp_path, topic, TableFormat.DELTA)
    expected = RECORDS // PARTITIONS
    assert positions_of(rows) == [
        (p, offset) for p in range(PARTITIONS) for offset in range(expected)
    ]
