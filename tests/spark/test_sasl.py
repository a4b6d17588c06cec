"""Source and sink over SASL_SSL with SCRAM: batch, and an exactly-once stream; no secret shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.profile import is_long

import penstock

pytestmark = pytest.mark.skipif(not is_long(), reason="Spark once more: PROFILE=verify")
_PASSWORD = "secret-of-spark"
_TIMEOUT_S = 180


@pytest.fixture(name="options", scope="module")
def _options() -> Iterator[dict[str, str]]:
    with penstock.Broker(
        security="sasl_ssl", config={"connections.max.reauth.ms": 2_000}
    ) as broker:
        with penstock.Admin(broker.bootstrap_servers, config=broker.client_config) as admin:
            admin.create_user("spark", _PASSWORD)
            admin.create_topics([penstock.NewTopic("in", partitions=3), penstock.NewTopic("out")])
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        yield {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": broker.client_config["ssl.ca.location"],
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{module} username="spark" password="{_PASSWORD}";',
        }


def test_rows_go_through_batch_and_an_exactly_once_stream(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    rows = spark.range(300).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("penstock").options(**options).option("topic", "in").mode("append").save()
    source = spark.readStream.format("penstock").options(**options)
    query = (
        source.option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
        .select("value")
        .writeStream.format("penstock")
        .options(**options)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_TIMEOUT_S)
    read = spark.read.format("penstock").options(**options).option("subscribe", "out").load()
    assert sorted(int(bytes(row.value)) for row in read.collect()) == list(range(300))
    assert spark._jvm is not None
    plan = spark._jvm.PythonSQLUtils.explainString(read._jdf.queryExecution(), "extended")
    assert _PASSWORD not in plan
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert _PASSWORD.encode() not in written


def test_a_wrong_password_fails_at_once_and_is_not_shown(
    spark: SparkSession, options: dict[str, str]
) -> None:
    wrong = options["kafka.sasl.jaas.config"].replace(_PASSWORD, "secret-of-nobody")
    reader = spark.read.format("penstock").options(**{**options, "kafka.sasl.jaas.config": wrong})
    with pytest.raises(PySparkException, match="the broker refuses the login") as failed:
        reader.option("subscribe", "in").load().collect()
    assert "secret-of-nobody" not in str(failed.value)
