"""A training run for the class archive: does what every pipeline does, so that the JVM loads the
classes that pipelines need.

`python -m penstock.spark.session.archive_training BOOTSTRAP TOPIC FOLDER`

Not a test: it only checks that the run and its JVM end normally.
"""

import sys
from pathlib import Path
from typing import Any

from penstock.spark.session.builder import session

_EXIT_TIMEOUT_S = 300.0  # the JVM writes its archive on exit
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(bootstrap: str, topic: str, folder: Path) -> None:
    spark = session("penstock prepare", master="local[2]", config=_SETTINGS)
    try:
        _run_queries(spark, bootstrap, topic, folder)
    finally:
        spark.stop()
        _stop_jvm()


def _run_queries(spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows.createOrReplaceTempView("numbers")
    parsed = spark.sql(
        "SELECT timestamp, from_json(CAST(value AS STRING), 'n BIGINT, name STRING') AS v"
        " FROM numbers"
    ).withWatermark("timestamp", "1 minute")
    parsed.createOrReplaceTempView("parsed")
    windows = spark.sql(
        "SELECT window(timestamp, '1 minute').start AS minute, v.name, count(*) AS n, sum(v.n) AS s"
        " FROM parsed GROUP BY window(timestamp, '1 minute'), v.name"
    )
    _drain(windows, "parquet", folder, path=str(folder / "windows"))
    copied = spark.sql("SELECT key, to_json(struct(value, timestamp)) AS value FROM numbers")
    _drain(copied, "penstock", folder, topic=topic, **{"kafka.bootstrap.servers": bootstrap})
    spark.read.parquet(str(folder / "windows")).groupBy("name").sum("n").collect()


def _drain(rows: Any, sink: str, folder: Path, **options: str) -> None:
    checkpoint = str(folder / f"checkpoint-{sink}")
    writer = rows.writeStream.format(sink).option("checkpointLocation", checkpoint)
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()


def _stop_jvm() -> None:
    """PySpark keeps its JVM for the next session; here there is none."""
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001 (PySpark offers no other way to its JVM)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_TIMEOUT_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
