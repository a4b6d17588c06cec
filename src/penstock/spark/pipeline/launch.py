"""A Spark session for a pipeline, with all that Spark and its Java print in a log file.

Not for the connector: any session has that. What the user reads is the pipeline's own.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.pipeline.failures import SparkMissing
from penstock.spark.pipeline.spec import DEFAULT_CHECKPOINTS
from penstock.spark.session.builder import DEFAULT_MASTER, session
from penstock.spark.session.spark_messages import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Short batches, looked at twice a second: none is to be missed.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


@contextmanager
def pipeline_session(
    name: str,
    settings: Mapping[str, str],
    log_file: Path,
    *,
    master: str | None = None,
    remote: str | None = None,
    low_latency: bool = True,
) -> Iterator["SparkSession"]:
    """Stopped at the end. `remote`: a Spark Connect server; `master`: anything that Spark knows."""
    check_spark()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with errors_into(log_file):
        if remote is not None:
            spark = _connect(remote, settings)
        else:
            spark = session(
                f"penstock {name}",
                master=master or DEFAULT_MASTER,
                config={**_QUIET, **settings},
                low_latency=low_latency,
            )
    try:
        yield spark
    finally:
        with errors_into(log_file):
            spark.stop()


def log_file_of(checkpoints: str, name: str) -> Path:
    """Beside the checkpoints, if these are on this machine."""
    local = checkpoints.removeprefix("file://")
    folder = DEFAULT_CHECKPOINTS if "://" in local else local
    return Path(folder) / name / "spark.log"


def check_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise SparkMissing(
            "pipelines run on PySpark, which comes with: pip install 'penstock[spark]'"
        ) from None


@contextmanager
def errors_into(log_file: Path) -> Iterator[None]:
    """What is started meanwhile writes its stderr there for as long as it lives."""
    sys.stderr.flush()
    before = os.dup(2)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        os.close(log)


def _connect(remote: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkMissing(f"cannot use Spark Connect at {remote}: {explain(str(error))}") from None
