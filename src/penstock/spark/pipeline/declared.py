"""Pipelines with Spark's declarative API, run by Spark's own runner in a child process: a Python
file, or a specification (`spark-pipeline.yml`) that names files in Python and SQL.

The runner speaks only Spark Connect. Without a given server, one is started in this process, on a
free local port and with a token, and polled for the progress of its queries. A run reads the
available data and ends.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.spark.pipeline.failures import PipelineFailed, QueryFailed
from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.progress import PipelineProgress, QueryTotals, read_progress
from penstock.spark.pipeline.spec import DEFAULT_CHECKPOINTS
from penstock.spark.pipeline.tree import import_yaml
from penstock.spark.session.spark_messages import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 (the name of a variable)
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: ")
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"
_POLL_S = 0.5
SPECIFICATIONS = (".yml", ".yaml")


class DeclaredPipeline(NamedTuple):
    file: Path
    folder: Path  # for checkpoints, absolute
    bootstrap: str

    @classmethod
    def of(cls, file: Path, bootstrap: str) -> Self:
        folder = Path(DEFAULT_CHECKPOINTS).absolute() / file.stem
        folder.mkdir(parents=True, exist_ok=True)
        return cls(file, folder, bootstrap)

    @property
    def log_file(self) -> Path:
        return self.folder / "spark.log"


def is_specification(text: str) -> bool:
    """Whether it is the YAML that Spark's own runner reads."""
    try:
        values = import_yaml().safe_load(text)
    except Exception:  # not valid YAML: whoever reads it as a pipeline of ours says where
        return False
    return isinstance(values, dict) and "libraries" in values and "sinks" not in values


def check_declared(file: Path) -> None:
    """Checks only that the file is valid Python, or has what Spark's runner requires; Spark checks
    what it declares."""
    if file.suffix in SPECIFICATIONS:
        values = import_yaml().safe_load(file.read_text())
        missing = [name for name in ("name", "storage") if name not in values]
        if missing:
            message = f"Spark's runner needs `{missing[0]}:` in a specification with `libraries:`"
            raise PipelineInvalid(str(file), [Problem(1, message)])
        return
    try:
        compile(file.read_text(), str(file), "exec", dont_inherit=True)
    except OSError as error:
        raise PipelineFailed(f"cannot read {file}: {error.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None) or 1
        problem = Problem(line, f"not valid Python: {getattr(error, 'msg', error)}")
        raise PipelineInvalid(str(file), [problem]) from None


def server_settings(
    declared: DeclaredPipeline, environment: MutableMapping[str, str] = os.environ
) -> dict[str, str]:
    """Settings for a session that is also a Spark Connect server; its token is in the
    environment."""
    environment.setdefault(_TOKEN, secrets.token_hex())
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # A persistent catalog, so that the next run finds the tables of this one.
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={declared.folder}/catalog;create=true"
        ),
    }


def server_address(spark: "SparkSession") -> str:
    jvm: Any = spark._jvm  # noqa: SLF001 (Spark offers the port nowhere else)
    service = getattr(getattr(jvm, _SERVICE), "MODULE$")
    # Only for this host name Spark does not require TLS
    return f"sc://localhost:{service.localPort()}"


def run_declared(
    declared: DeclaredPipeline,
    address: str,
    *,
    stop: Event,
    note: Callable[[str], None],
    watch: "QueryWatch | None" = None,
) -> None:
    """Runs until all available data is read, or `stop` is set. Raises QueryFailed."""
    if declared.file.suffix in SPECIFICATIONS:
        spec = declared.file
    else:
        spec = declared.folder / "spark-pipeline.yml"
        spec.write_text(json.dumps(specification(declared), indent=2))  # JSON is YAML
    environment = {
        **os.environ,
        "SPARK_REMOTE": address,
        "PENSTOCK_BOOTSTRAP": declared.bootstrap,
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)]
    with (
        declared.log_file.open("a", buffering=1) as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env=environment,
            process_group=0,  # this process forwards Ctrl-C
        ) as process,
    ):
        assert process.stdout is not None
        lines, output = _log_lines(process.stdout, log.write, note), list[str]()
        reader = Thread(target=output.extend, args=(lines,))
        reader.start()
        try:
            _wait(process, stop, watch)
        finally:
            process.send_signal(signal.SIGINT)  # if it still runs
            process.wait()
            reader.join()
    if process.returncode and not stop.is_set():
        reason = explain("".join(output))
        raise QueryFailed(f"{declared.file}: {reason}; see {declared.log_file} for details")


def specification(declared: DeclaredPipeline) -> dict[str, object]:
    """The specification file that Spark's runner reads."""
    include = os.path.relpath(declared.file.absolute(), declared.folder)
    return {
        "name": declared.file.stem,
        "storage": f"{declared.folder.as_uri()}/storage",
        "libraries": [{"glob": {"include": include}}],
    }


def _log_lines(
    lines: Iterable[str], write: Callable[[str], object], note: Callable[[str], None]
) -> Iterator[str]:
    """Logs every line, and notes those with a timestamp: the others belong to stack traces."""
    for line in lines:
        write(line)
        if _STAMP.match(line):
            note(_STAMP.sub("", line).rstrip())
        yield line


def _wait(process: "subprocess.Popen[str]", stop: Event, watch: "QueryWatch | None") -> None:
    while process.poll() is None and not stop.wait(_POLL_S):
        if watch is not None:
            watch.poll()
    if watch is not None:
        watch.poll()


class QueryWatch:
    """Progress of all streaming queries in this process's JVM, whoever started them."""

    def __init__(self, spark: "SparkSession", show: Callable[[PipelineProgress], None]) -> None:
        self._spark: Any = spark
        self._show = show
        self._seen: dict[str, Any] = {}  # a query reports its last batch only after it has ended
        self.totals: dict[str, QueryTotals] = {}

    def poll(self) -> None:
        shared = self._spark._jsparkSession.sharedState()  # noqa: SLF001 (of all sessions)
        for query in shared.activeStreamingQueries().values():
            self._seen.setdefault(str(query.runId()), query)
        for query in self._seen.values():
            for progress in query.recentProgress():
                self._record(str(query.name()), json.loads(progress.json()))

    def _record(self, name: str, progress_json: dict[str, Any]) -> None:
        progress = read_progress(name, progress_json)
        before = self.totals.get(name, QueryTotals())
        if progress.batch > before.last_batch:
            self.totals[name] = before.after(progress)
            self._show(progress)
