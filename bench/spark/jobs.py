"""Records per second of the jobs: replay, stats, audit. A child process of bench.spark.

Replay also through Spark's SQL, as it goes with --where.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from bench.broker.wire import Wire
from bench.spark.contenders import PENSTOCK
from bench.spark.sessions import print_figure, read_arguments, session
from bench.spark.topics import create_topic
from penstock.spark.connect.reachable import connect
from penstock.spark.jobs.audit import Audit, run_audit
from penstock.spark.jobs.replay import Replay, run_replay
from penstock.spark.jobs.running import JobWatch
from penstock.spark.jobs.scope import JobScope
from penstock.spark.jobs.stats import Stats, run_stats

JOBS = "jobs, records/s"
_TARGET = "replayed"


def main() -> None:
    arguments = read_arguments()
    servers = arguments["servers"][PENSTOCK]
    topic, records = arguments["some"]
    with session(arguments["home"], "", with_preset=True) as spark:
        jobs = _jobs(spark, servers, topic)
        for number in range(-1, arguments["rounds"]):
            for name, run in jobs.items():
                _fresh_target(servers)
                start = time.perf_counter()
                run()
                rate = records / (time.perf_counter() - start)
                if number >= 0:  # the first round warms up the compilers
                    print_figure(JOBS, name, rate)


def _jobs(spark: SparkSession, servers: str, topic: str) -> Mapping[str, Callable[[], Any]]:
    client, scope = connect(servers), JobScope((topic,))
    watch = JobWatch(stop=threading.Event(), show=lambda progress: None)
    copy = Replay(scope=scope, target=_TARGET)
    with_sql = Replay(scope=scope, target=_TARGET, where="true")
    return {
        "replay": lambda: run_replay(spark, client, copy, watch),
        "replay --where": lambda: run_replay(spark, client, with_sql, watch),
        "stats": lambda: run_stats(spark, client, Stats(scope=scope), watch),
        "audit": lambda: run_audit(spark, client, Audit(scope=scope), watch),
    }


def _fresh_target(servers: str) -> None:
    wire = Wire(servers)
    wire.delete_topic(_TARGET)
    create_topic(wire, _TARGET)
    wire.close()


if __name__ == "__main__":
    main()
