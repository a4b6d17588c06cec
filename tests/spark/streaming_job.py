"""A streaming query in its own process, to be killed: `python -m ... ARGUMENTS`.

Copies a topic to Parquet, one folder per micro-batch, so that an identical rerun changes nothing
and a different one shows. Reports what it does on stdout, one line each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.local_spark import local_spark

STARTED = "the first offset is known"
POLL_S = 0.05


class Job(NamedTuple):
    options: dict[str, str]
    home: str  # the checkpoint, the output, and Spark's own files
    hang_before: int | None = None  # the micro-batch whose output is never written
    hang_after: int | None = None  # the micro-batch whose output is written, but not committed

    @property
    def is_endless(self) -> bool:
        return self.hang_before is not None or self.hang_after is not None

    @property
    def output(self) -> Path:
        return Path(self.home) / "output"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.spark.streaming_job", json.dumps(self._asdict())]


def run(spark: SparkSession, job: Job) -> None:
    def keep(batch: DataFrame, number: int) -> None:
        _hang_at(number, job.hang_before)
        batch.write.mode("overwrite").parquet(str(job.output / f"batch={number}"))
        _say(f"batch {number} written")
        _hang_at(number, job.hang_after)

    rows = spark.readStream.format("penstock").options(**job.options).load()
    writer = rows.select("value", "partition", "offset").writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", f"{job.home}/checkpoint")
    if job.is_endless:
        query = writer.trigger(processingTime="0 seconds").start()
        while query.isActive and not _has_started(query, job):
            time.sleep(POLL_S)
        _say(STARTED)
    else:
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def _has_started(query: StreamingQuery, job: Job) -> bool:
    """The first batch is planned, or the query waits for records to plan it."""
    planned = Path(job.home) / "checkpoint" / "offsets" / "0"
    return planned.exists() or query.status["message"] == "Waiting for data to arrive"


def hangs(number: int) -> str:
    """What it prints before it hangs."""
    return f"hanging in batch {number}"


def _hang_at(number: int, where: int | None) -> None:
    if number == where:
        _say(hangs(number))
        threading.Event().wait()


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    os.setsid()  # so that one signal also reaches the JVM
    job = Job(**json.loads(sys.argv[1]))
    with local_spark(Path(job.home) / "spark") as spark:
        run(spark, job)


if __name__ == "__main__":
    main()
