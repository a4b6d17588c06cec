"""A local Spark for tests: starts and stops session, gateway and JVM.

Invariant: when the context ends, the JVM it started has exited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark.session.builder import session

STOP_TIMEOUT_S = 180
# For a short-lived JVM, in which a better compiler or collector does not pay off.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m -Xshare:auto"

# Small, fast to start, quiet, and on loopback only.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def quick_start() -> dict[str, str]:
    """The environment for a program that starts its own Spark."""
    return {"SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {QUICK_JAVA}".strip()}


@contextmanager
def local_spark(
    home: Path, settings: Mapping[str, str] | None = None, *, master: str = "local[2]"
) -> Iterator[SparkSession]:
    """A session from `penstock.spark.session.builder`, with settings for tests."""
    folders = {"spark.sql.warehouse.dir": str(home / "warehouse"), "spark.local.dir": str(home)}
    config = {**SETTINGS, **folders, **(settings or {})}
    spark = session("penstock tests", master=master, config=config)
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()
        _end_jvm()


def _end_jvm() -> None:
    """PySpark keeps its JVM for the next session; here there is none."""
    context: Any = SparkContext
    gateway, context._gateway, context._jvm = context._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(STOP_TIMEOUT_S)
