"""Runs Spark in child processes, because settings cannot change once the JVM runs.

A child prints its figures as lines of JSON; its other output is shown only if it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark.session.builder import preset

MASTER = "local[2]"
CHILD_TIMEOUT_S = 900.0
# Settings of all sessions that do not affect speed; otherwise Spark's defaults.
_COMMON = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}

Figure = dict[str, Any]  # metric, contender, value


class ChildFailed(Exception):
    """A measuring process exited with an error; the message is the end of its output."""


@contextmanager
def session(home: str, class_path: str, *, with_preset: bool) -> Iterator[SparkSession]:
    """A session for a child process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **(preset(MASTER) if with_preset else {}),
        **_COMMON,
        "spark.local.dir": home,
        "spark.sql.warehouse.dir": f"{home}/warehouse",
        **({"spark.driver.extraClassPath": class_path} if class_path else {}),
    }
    builder: Any = SparkSession.builder
    builder = builder.master(MASTER).appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()


def run_child(module: str, arguments: Mapping[str, Any]) -> Iterator[Figure]:
    """Yields the figures of `python -m bench.spark.<module>` as they arrive."""
    command = [sys.executable, "-m", f"bench.spark.{module}", json.dumps(arguments)]
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        deadline = time.monotonic() + CHILD_TIMEOUT_S
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if time.monotonic() > deadline:
                    raise ChildFailed(f"{module}: not done after {CHILD_TIMEOUT_S:.0f} s")
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait(60)
        finally:
            process.kill()
            process.wait()
        if status != 0:
            errors.seek(0)
            output = errors.read().decode(errors="replace")[-4000:]
            raise ChildFailed(f"{module} exited with {status}:\n{output}")


def print_figure(metric: str, contender: str, value: float) -> None:
    """Prints a figure in a child process."""
    figure = {"metric": metric, "contender": contender, "value": value}
    print(json.dumps(figure), flush=True)


def read_arguments() -> dict[str, Any]:
    """The arguments of a child process."""
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    Path(arguments["home"]).mkdir(parents=True, exist_ok=True)
    return arguments
