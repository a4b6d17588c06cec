"""A similar pipeline with Spark's declarative API: Spark works out the order of its parts.

    penstock pipeline run examples/pipelines/clicks_declared.py

Each run reads the records since the last one. The tables are Spark's, in ./spark-warehouse.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
BOOTSTRAP = os.environ["PENSTOCK_BOOTSTRAP"]  # set by `penstock pipeline run`
COLUMNS = "user STRING, page STRING, at TIMESTAMP, ms INT"


@dp.table
def clicks() -> DataFrame:
    """The parsed topic, as a streaming table."""
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return records.select(
        f.from_json(f.col("value").cast("string"), COLUMNS).alias("click")
    ).select("click.*")


@dp.materialized_view
def clicks_by_page() -> DataFrame:
    """Recomputed from the table with each run."""
    return spark.read.table("clicks").groupBy("page").agg(f.count("*").alias("clicks"))


dp.create_sink(
    name="slow_clicks",
    format="penstock",
    options={"kafka.bootstrap.servers": BOOTSTRAP, "topic": "slow-clicks"},
)


@dp.append_flow(target="slow_clicks")
def slow_clicks_flow() -> DataFrame:
    """Writes slow clicks to a topic."""
    slow = spark.readStream.table("clicks").where("ms > 1000")
    return slow.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
