"""The sink's default, as read_committed consumers see it: a write is complete or absent, and a
rerun micro-batch counts once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.profile import is_long
from tests.spark.exactly_once_job import PARTITIONS, open_transactions, read_output
from tests.spark.topics import create_topic

import penstock
from penstock.spark.sink.update_mode import write_updates

QUERY_TIMEOUT_S = 180


def sink(broker: penstock.Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}


def counts_in(broker: penstock.Broker, topic: str) -> Counter[int]:
    return read_output(broker.bootstrap_servers, topic).counts


def test_batch_write_is_complete_or_absent(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    """The last task fails after the others are done."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    rows = spark.range(1000, numPartitions=4).selectExpr(
        "cast(id AS string) AS value", "cast(if(id = 999, 77, id % 4) AS int) AS partition"
    )

    def save(rows: DataFrame) -> None:
        rows.write.format("penstock").options(**sink(broker, topic_name)).mode("append").save()

    with pytest.raises(PySparkException, match="column `partition` has 77"):
        save(rows)
    assert counts_in(broker, topic_name) == Counter()
    save(rows.where("partition < 4"))
    assert counts_in(broker, topic_name) == Counter(range(999))
    assert open_transactions(servers) == []


@pytest.mark.parametrize("mode", ["append", "update"] if is_long() else ["append"])
def test_rerun_micro_batch_counts_once(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path, mode: str
) -> None:
    """As after a driver that failed just before it recorded the batch as done; also if the query's
    first batch was written with at-least-once."""
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    source = tmp_path / "in"
    source.mkdir()
    lines = spark.readStream.schema("n INT").json(str(source))
    rows = lines if mode == "append" else lines.groupBy("n").count()
    rows = rows.selectExpr("cast(n AS string) AS key", "cast(n AS string) AS value")

    def drain(**more: str) -> None:
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.outputMode(mode).trigger(availableNow=True)
        options = sink(broker, topic_name) | more
        if mode == "update":
            query = write_updates(writer, options).start()
        else:
            query = writer.format("penstock").options(**options).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)

    put_numbers(source, range(100))
    drain(delivery="at-least-once")
    put_numbers(source, range(100, 200))
    drain()
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    drain()
    assert counts_in(broker, topic_name) == Counter(range(200))
    assert open_transactions(broker.bootstrap_servers) == []


def put_numbers(folder: Path, numbers: range) -> None:
    text = "".join(json.dumps({"n": n}) + "\n" for n in numbers)
    (folder / f"{numbers.start}.json").write_text(text)


@pytest.mark.skipif(not is_long(), reason="its abort takes five seconds")
def test_tasks_that_write_after_their_job_failed_leave_no_rows(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    """The first task fails at once; the others start to write after the abort has started."""
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    rows = spark.range(2, numPartitions=2).selectExpr(
        "cast(id AS string) AS value",
        "cast(if(id = 0, 77, 0) AS int) AS partition",
        "if(id = 0, 0, reflect('java.lang.Thread', 'sleep', 1500L)) AS slept",
    )
    with pytest.raises(PySparkException, match="column `partition` has 77"):
        rows.write.format("penstock").options(**sink(broker, topic_name)).mode("append").save()
    assert counts_in(broker, topic_name) == Counter()
    assert open_transactions(broker.bootstrap_servers) == []
