"""Several exactly-once queries in one driver, to be stopped and killed: `python -m ...`.

Reads commands on stdin, `start NUMBER` and `stop NUMBER`, and answers each with a line; the end of
stdin ends it. Every query copies a topic of its own to one topic that all share.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.local_spark import local_spark

STARTED, STOPPED, READY = "started", "stopped", "ready"


class QueriesJob(NamedTuple):
    servers: str
    target: str
    home: str  # checkpoints
    driver: int
    master: str
    abandoned_after: str
    records_a_batch: int

    def command(self) -> list[str]:
        module = "tests.spark.stopped_queries_job"
        return [sys.executable, "-m", module, json.dumps(self._asdict())]


def source_topic(number: int) -> str:
    return f"numbers-of-{number}"


def start(spark: SparkSession, job: QueriesJob, number: int) -> StreamingQuery:
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", source_topic(number))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.records_a_batch))
        .option("minPartitions", "2")  # so that a batch has several tasks and transactions
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", job.target)
        .option("abandonedAfter", job.abandoned_after)
        .option("checkpointLocation", str(Path(job.home) / f"checkpoint-{number}"))
        .start()
    )


def main() -> None:
    os.setsid()  # so that one signal also reaches the JVM and its workers
    job = QueriesJob(**json.loads(sys.argv[1]))
    queries: dict[int, StreamingQuery] = {}
    home = Path(job.home) / f"spark-{job.driver}-{os.getpid()}"
    with local_spark(home, master=job.master) as spark:
        print(READY, flush=True)
        for line in sys.stdin:
            command, number = line.split()[0], int(line.split()[1])
            running = queries.pop(number, None)
            if running is not None:
                running.stop()
            if command == "start":
                queries[number] = start(spark, job, number)
            print(STARTED if command == "start" else STOPPED, number, flush=True)


if __name__ == "__main__":
    main()
