"""Reading topics with transactions: no undecided or aborted records, no duplicates, and none missed
that are committed later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.topics import ask, create_topic

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import PreparedState
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch

QUERY_TIMEOUT_S = 180


def write(servers: str, topic: str, name: str, values: list[str], end: str) -> PreparedState:
    """One transaction in the topic's only partition, ended as `end` says."""

    async def work(client: ClusterClient) -> PreparedState:
        transaction = await RawTransaction.begin(client, f"{topic}-{name}", two_phase=True)
        records = [Record(n, 1, None, value.encode()) for n, value in enumerate(values)]
        await transaction.write(TopicPartition(topic, 0), build_batch(records))
        if end == "commit":
            await transaction.commit()
        elif end == "abort":
            await transaction.abort()
        else:
            await transaction.prepare()
        return PreparedState(*transaction.producer)

    return ask(servers, work)


def decide(servers: str, state: PreparedState, *, commit: bool) -> None:
    ask(servers, lambda client: client.transactions.end(state, commit=commit))


def make_drain(
    spark: SparkSession, servers: str, topic: str, home: Path
) -> Callable[[], list[str]]:
    """Each call runs the query to the last stable offset and returns all it ever wrote."""

    def drain() -> list[str]:
        rows = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        writer = rows.selectExpr("cast(value AS string) AS value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(home / "checkpoint"))
        query = writer.option("path", str(home / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return sorted(row.value for row in spark.read.parquet(str(home / "out")).collect())

    return drain


def test_stream_reads_committed_records_and_others_once_they_are_decided(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    drain = make_drain(spark, servers, topic_name, tmp_path)
    write(servers, topic_name, "a", ["committed-1", "committed-2"], "commit")
    write(servers, topic_name, "b", ["aborted-1"], "abort")
    first = write(servers, topic_name, "c", ["prepared-1"], "prepare")
    write(servers, topic_name, "d", ["behind-1"], "commit")
    second = write(servers, topic_name, "e", ["prepared-2"], "prepare")
    write(servers, topic_name, "b", ["aborted-2"], "abort")
    write(servers, topic_name, "f", ["behind-2"], "commit")

    assert drain() == ["committed-1", "committed-2"]
    decide(servers, first, commit=True)
    assert drain() == ["behind-1", "committed-1", "committed-2", "prepared-1"]
    decide(servers, second, commit=False)
    assert drain() == ["behind-1", "behind-2", "committed-1", "committed-2", "prepared-1"]
    assert drain() == ["behind-1", "behind-2", "committed-1", "committed-2", "prepared-1"]
