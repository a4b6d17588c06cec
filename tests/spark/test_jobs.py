"""Jobs on Spark: what an audit reports, what a replay writes, what stats count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long, scaled
from tests.spark.planted_faults import ALSO_EXPECTED, EXPECTED, TOPIC, broker_with_faults
from tests.spark.topics import Sent, create_topic, delete_records, send
from tests.spark.written import has_undecided, read_records

import penstock
from penstock.protocol.records import Record
from penstock.spark.connect.reachable import connect
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.audit import Audit, AuditResult, run_audit
from penstock.spark.jobs.content import parse_identity
from penstock.spark.jobs.failures import JobFailed, JobRefused, JobStopped
from penstock.spark.jobs.replay import Replay, ReplayResult, run_replay
from penstock.spark.jobs.replay_function import load_function
from penstock.spark.jobs.running import JobProgress, JobWatch
from penstock.spark.jobs.scope import Edge, EdgeKind, JobScope
from penstock.spark.jobs.stats import Stats, run_stats
from penstock.spark.jobs.stats_summary import TopicStats

PENSTOCK = str(Path(sys.executable).parent / "penstock")
TIMEOUT_S = 400  # a job takes half a minute, but minutes on a busy machine


class Watched:
    """A watch that never stops its job, and the progress it was shown."""

    def __init__(self) -> None:
        self.shown: list[JobProgress] = []
        self.watch = JobWatch(stop=threading.Event(), show=self.shown.append)


def audit(spark: SparkSession, servers: str, options: Audit) -> AuditResult:
    return run_audit(spark, connect(servers), options, Watched().watch)


def problems(result: AuditResult, partition: int = 0) -> list[tuple[str, int, int]]:
    return [
        (finding.kind.value, finding.offset, finding.last_offset)
        for finding in result.findings
        if finding.is_problem and finding.tp.partition == partition
    ]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    with broker_with_faults(tmp_path_factory.mktemp("faulty") / "data") as broker:
        yield broker


def test_audit_reports_every_planted_fault_and_no_other(
    spark: SparkSession, faulty: penstock.Broker
) -> None:
    options = Audit(scope=JobScope((TOPIC,)), range_offsets=900)
    result = audit(spark, faulty.bootstrap_servers, options)
    for partition, expected in EXPECTED.items():
        also = ALSO_EXPECTED.get(partition, [])
        assert problems(result, partition) == [*expected, *also], partition
    assert {finding.tp.topic for finding in result.findings} == {TOPIC}


@pytest.mark.skipif(
    not scaled(test=0, verify=1, release=1),
    reason="starts a Spark of its own for what the test above covers",
)
def test_audit_command_prints_problems_and_exits_1(faulty: penstock.Broker, tmp_path: Path) -> None:
    options = ["--master", "local[2]", "--partitions", "0,3", "--no-compare"]
    done = subprocess.run(
        [PENSTOCK, "job", "audit", TOPIC, *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": faulty.bootstrap_servers},
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(f"PROBLEM [crc] {TOPIC}-3 offset 1000 to 1049: the CRC ")
    assert last.startswith("NOT CLEAN: 1 problem; 3,950 records in ")
    assert "check batches: " in done.stderr
    assert "Traceback" not in done.stderr


def test_audit_of_a_clean_topic_reports_nothing(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = broker.bootstrap_servers
    records = scaled(test=30_000, verify=10_000_000, release=10_000_000)
    create_topic(servers, topic_name, partitions=4)
    rows = spark.range(records).selectExpr(
        "cast(id % 1000 AS string) AS key", "concat('value number ', id) AS value"
    )
    options = {"kafka.bootstrap.servers": servers, "topic": topic_name}
    rows.write.format("penstock").options(**options).mode("append").save()
    watched = Watched()
    result = run_audit(spark, connect(servers), Audit(scope=JobScope((topic_name,))), watched.watch)
    assert result.findings == []
    assert result.records == records
    assert {progress.step for progress in watched.shown} == {"check batches", "compare records"}
    assert watched.shown[-1].done == watched.shown[-1].tasks > 0
    with capsys.disabled():
        pace = records / result.seconds
        print(f"\naudit of {records:,} records: {result.seconds:.1f} s, {pace:,.0f} records/s")


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/jobs finds both kinds")
def test_audit_reports_duplicates_and_sequence_gaps(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = create_with(broker, topic_name, [b"1", b"2", b"4", b"3", b"3", b"7"])
    scope = JobScope((topic_name,), partitions=(0,))
    assert problems(audit(spark, servers, Audit(scope=scope))) == [("duplicate", 4, 4)]
    whole = Audit(scope=scope, identity=parse_identity("key,value,timestamp"))
    assert problems(audit(spark, servers, whole)) == []
    numbered = Audit(scope=scope, compares=False, sequence="cast(value AS string)")
    assert problems(audit(spark, servers, numbered)) == [
        ("order", 3, 3),
        ("duplicate", 4, 4),
        ("missing", 5, 5),
    ]


@pytest.mark.skipif(
    not scaled(test=0, verify=1, release=1), reason="this path is taken only for many records"
)
def test_audit_notes_very_many_duplicates(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    """There are more than can be sent to tasks, so all rows are grouped. The second half is
    reversed, so that no block is repeated."""
    servers, contents = broker.bootstrap_servers, 150_000
    create_topic(servers, topic_name)
    numbers = f"if(id < {contents}, id, {2 * contents - 1} - id)"
    rows = spark.range(0, 2 * contents, 1, 1).selectExpr(f"concat('value ', {numbers}) AS value")
    options = {"kafka.bootstrap.servers": servers, "topic": topic_name}
    rows.write.format("penstock").options(**options).mode("append").save()
    watched = Watched()
    result = run_audit(spark, connect(servers), Audit(scope=JobScope((topic_name,))), watched.watch)
    assert problems(result) == []
    (note,) = result.findings
    assert f"{contents:,} of {2 * contents:,} records have the same key and value" in note.message
    assert watched.shown[-1].step == "inspect duplicates"


def create_with(broker: penstock.Broker, topic: str, values: list[bytes]) -> str:
    """Writes the values to both of two partitions, an hour later to the second."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    records = [
        Sent(value, b"k", partition, hour_ms(partition) + index, [("h", b"x")])
        for partition in range(2)
        for index, value in enumerate(values)
    ]
    send(servers, topic, records)
    return servers


def hour_ms(hour: int) -> int:
    return 1_700_000_000_000 + hour * 3_600_000


def test_audit_reports_requested_offsets_that_are_deleted(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = create_with(broker, topic_name, [b"a", b"b", b"c"])
    delete_records(servers, topic_name, {0: 2})
    scope = JobScope((topic_name,), partitions=(0,))
    assert audit(spark, servers, Audit(scope=scope, compares=False)).findings == []
    named = scope._replace(start=Edge(EdgeKind.OFFSET, 1))
    assert problems(audit(spark, servers, Audit(scope=named, compares=False))) == [
        ("deleted", 1, 1)
    ]


# Replay.


def replay(spark: SparkSession, servers: str, options: Replay) -> ReplayResult:
    return run_replay(spark, connect(servers), options, Watched().watch)


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_replay_copies_a_time_range_into_the_same_partitions(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = create_with(broker, topic_name, [b"a", b"b", b"c"])
    scope = JobScope((topic_name,), start=Edge(EdgeKind.TIME, hour_ms(0) + 1))
    options = Replay(
        scope=scope._replace(end=Edge(EdgeKind.TIME, hour_ms(1) + 2)),
        target=f"{topic_name}.copy",
        creates_target=True,
        keeps_partitions=True,
        marks_origin=True,
    )
    result = replay(spark, servers, options)
    assert (result.offsets, result.written) == (4, 4)
    copied = read_records(servers, options.target)
    assert contents(copied[0]) == [(b"k", b"b"), (b"k", b"c")]
    assert contents(copied[1]) == [(b"k", b"a"), (b"k", b"b")]
    assert dict(copied[0][1].headers) == {
        "h": b"x",
        "penstock.topic": topic_name.encode(),
        "penstock.partition": b"0",
        "penstock.offset": b"2",
        "penstock.timestamp": str(hour_ms(0) + 2).encode(),
    }


CHANGES = """
def twice_but_not_b(record):
    if record.value == b"B!":
        return None
    return [record, record._replace(key=b"second")]
"""


def test_replay_transforms_records_with_sql_and_a_function(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = create_with(broker, topic_name, [b"a", b"b", b"c"])
    create_topic(servers, f"{topic_name}.changed")
    file = tmp_path / "changes_of_records.py"
    file.write_text(CHANGES)
    options = Replay(
        scope=JobScope((topic_name,)),
        target=f"{topic_name}.changed",
        where="partition = 0",
        key="offset + 100",
        value="concat(upper(cast(value AS string)), '!')",
        function=load_function(f"{file}:twice_but_not_b"),
    )
    assert replay(spark, servers, options).written == 4
    assert contents(read_records(servers, options.target)[0]) == [
        (b"100", b"A!"),
        (b"second", b"A!"),
        (b"102", b"C!"),
        (b"second", b"C!"),
    ]


def test_impossible_replay_is_refused(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = create_with(broker, topic_name, [b"a"])
    create_topic(servers, f"{topic_name}.narrow")
    options = Replay(
        scope=JobScope((topic_name,)), target=f"{topic_name}.narrow", keeps_partitions=True
    )
    with pytest.raises(ClusterNotReady, match=r"has 1 partitions, but --keep-partitions needs 2"):
        replay(spark, servers, options)
    with pytest.raises(JobRefused, match="copied into itself"):
        replay(spark, servers, Replay(scope=JobScope((topic_name,)), target=topic_name))
    with pytest.raises(ClusterNotReady, match=r"does not exist.*--create creates the target"):
        replay(spark, servers, Replay(scope=JobScope((topic_name,)), target="nowhere-to-be-found"))
    wrong = Replay(scope=JobScope((topic_name,)), target=f"{topic_name}.narrow", value="no_such(1)")
    with pytest.raises(JobRefused, match=r"invalid SQL: .*no_such"):
        replay(spark, servers, wrong)


@pytest.mark.parametrize("function", [None, "def same(record):\n    return record\n"])
def test_records_are_copied_alike_with_and_without_spark_sql(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    function: str | None,
) -> None:
    """Without SQL, no row passes through Spark's JVM."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    records = [
        Sent(
            None if number % 5 == 0 else f"value {number}".encode(),
            f"key {number % 7}".encode() if number % 11 else None,
            number % 2,
            headers=[("a", None), ("a", b"1")] * (number % 3),
        )
        for number in range(40)
    ]
    send(servers, topic_name, records)
    file = tmp_path / "same_records.py"
    file.write_text(function or "")
    copies = [
        Replay(
            scope=JobScope((topic_name,)),
            target=f"{topic_name}.{name}",
            where=where,
            function=load_function(f"{file}:same") if function else None,
            keeps_partitions=keeps_partitions,
            creates_target=True,
        )
        for name, where, keeps_partitions in (
            ("sql", "true", False),
            ("direct", None, False),
            ("sql-kept", "true", True),
            ("direct-kept", None, True),
        )
    ]
    assert [replay(spark, servers, options).written for options in copies] == [40] * 4
    sql, direct, sql_kept, direct_kept = (described(servers, copy.target) for copy in copies)
    assert keyed(direct) == keyed(sql)  # the others have a partition of the sink's choice
    assert direct_kept == sql_kept == described(servers, topic_name)


def keyed(records: dict[int, list[tuple[object, ...]]]) -> dict[int, list[str]]:
    """Without order, because tasks write beside each other."""
    return {
        partition: sorted(repr(record) for record in members if record[0] is not None)
        for partition, members in records.items()
    }


def described(servers: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    return {
        partition: [(record.key, record.value, tuple(record.headers)) for record in records]
        for partition, records in read_records(servers, topic).items()
    }


def test_failing_replay_function_names_its_record_and_nothing_is_copied(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = create_with(broker, topic_name, [b"a", b"b"])
    create_topic(servers, f"{topic_name}.out")
    file = tmp_path / "failing_on_records.py"
    file.write_text(
        "def fail(record):\n"
        "    if record.value == b'b':\n"
        "        raise KeyError('price')\n"
        "    return record\n"
    )
    function = load_function(f"{file}:fail")
    options = Replay(scope=JobScope((topic_name,)), target=f"{topic_name}.out", function=function)
    with pytest.raises(
        JobFailed, match=rf"failed for {topic_name}-\d offset \d: KeyError: 'price'"
    ):
        replay(spark, servers, options)
    assert not has_undecided(servers, options.target)
    assert read_records(servers, options.target).get(0, []) == []


def test_stopped_job_raises_job_stopped(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = create_with(broker, topic_name, [b"a"])
    watch = JobWatch(stop=threading.Event(), show=lambda progress: None)
    watch.stop.set()
    with pytest.raises(JobStopped, match="stopped during: check batches"):
        run_audit(spark, connect(servers), Audit(scope=JobScope((topic_name,))), watch)
    assert spark.range(3).count() == 3


# Stats.


def test_stats_count_sizes_keys_skew_and_rates(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    sent = [
        Sent(
            b"x" * (10 + index % 3), b"hot" if index % 2 else b"k%d" % index, 0, hour_ms(0) + index
        )
        for index in range(300)
    ]
    send(servers, topic_name, [*sent, Sent(None, None, 1, hour_ms(0) + 2_000)])
    watched = Watched()
    options = Stats(scope=JobScope((topic_name,)), top=2)
    (topic,) = run_stats(spark, connect(servers), options, watched.watch).topics
    assert isinstance(topic, TopicStats)
    first, second = topic.partitions
    assert (first.records, first.without_key, first.value_bytes) == (300, 0, 3_300)
    assert (second.records, second.without_key, second.without_value) == (1, 1, 1)
    assert (first.least_value_bytes, first.median_value_bytes, first.most_value_bytes) == (
        *(10, 11, 12),
    )
    assert (topic.records, topic.keys) == (301, 151)
    hottest, _ = topic.top_keys
    assert (hottest.key, hottest.records, hottest.partitions) == (b"hot", 150, 1)
    assert [bucket.records for bucket in topic.buckets] == [300, 1]
    assert topic.sizes[0] == (1, 1)
    assert sum(records for _, records in topic.sizes) == 301
    assert topic.skew == pytest.approx(2 * 300 / 301)
    assert json.loads(json.dumps(topic.as_json()))["records"] == 301
    assert {progress.step for progress in watched.shown} == {"count records and keys"}
