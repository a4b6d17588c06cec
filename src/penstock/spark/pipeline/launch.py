"""A Spark session for a pipeline, with the output of Spark and its JVM redirected to a log file.

Only for Penstock's commands: the connector works in any session. The terminal shows only the
pipeline's own messages.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.pipeline.failures import SparkMissing
from penstock.spark.pipeline.spec import DEFAULT_CHECKPOINTS
from penstock.spark.session.builder import DEFAULT_MASTER, session
from penstock.spark.session.connect_server import (
    ConnectStopped,
    NoConnectServer,
    check_listening,
    connect_session,
)
from penstock.spark.session.spark_messages import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Batches may be short and are polled twice a second: keep enough of them.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}

# Loggers by which PySpark reports errors of SQL and of DataFrames before it raises them.
_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_PY4J = "/py4j/"


@contextmanager
def pipeline_session(
    name: str,
    settings: Mapping[str, str],
    log_file: Path,
    *,
    master: str | None = None,
    remote: str | None = None,
    low_latency: bool = True,
    own_group: bool = False,
    stop: threading.Event | None = None,
) -> Iterator["SparkSession"]:
    """Stops the session on exit. `remote` is a Spark Connect server, `master` any Spark master
    URL. `own_group`: a signal to the group of this process does not end Spark. `stop`: when it is
    set, a server is not waited for."""
    check_spark()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    _log_into(log_file)
    with errors_into(log_file):
        if remote is not None:
            spark = _connect(remote, settings, stop)
        else:
            spark = session(
                f"penstock {name}",
                master=master or DEFAULT_MASTER,
                config={**_QUIET, **settings},
                low_latency=low_latency,
                own_group=own_group,
            )
    try:
        with _java_alive(log_file):
            yield spark
    finally:
        with _java_alive(log_file), errors_into(log_file):
            spark.stop()


def log_file_of(checkpoints: str, name: str) -> Path:
    """`spark.log` beside the checkpoints if they are local, else in the default folder."""
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
    """Redirects stderr to the file. Processes started meanwhile keep writing to it."""
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


def _log_into(log_file: Path) -> None:
    """What PySpark logs itself: the whole context of each error of SQL, as one line of JSON."""
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4js)
    for name in _ERROR_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(log_file, delay=True))


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Py4J reports a connection that Java has closed to the root logger, with a traceback."""
    return _PY4J not in record.pathname


@contextmanager
def _java_alive(log_file: Path) -> Iterator[None]:
    """Whoever ends all processes of a service also ends Spark's, maybe before this one."""
    from penstock.spark.session.spark_errors import JAVA_ENDED

    try:
        yield
    except JAVA_ENDED:
        raise SparkMissing(
            f"Spark's Java process has ended before its work was done; see {log_file} for why"
        ) from None


def check_remote(remote: str) -> None:
    """For Spark's own runner, which would wait for a server that is not there."""
    try:
        check_listening(remote)
    except NoConnectServer as error:
        raise SparkMissing(str(error)) from None


def _connect(
    remote: str, settings: Mapping[str, str], stop: threading.Event | None
) -> "SparkSession":
    from pyspark.errors import PySparkException

    try:
        return connect_session(remote, settings, stop=stop)
    except ConnectStopped:
        raise
    except NoConnectServer as error:
        raise SparkMissing(str(error)) from None
    except PySparkException as error:
        raise SparkMissing(f"cannot use Spark Connect at {remote}: {explain(str(error))}") from None
