"""`penstock pipeline run` as a process: its output and its exit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.profile import is_long, scaled
from tests.spark.local_spark import quick_start
from tests.spark.pipelines import values_of, write_pipeline
from tests.spark.topics import Sent, create_topic, send

import penstock
from penstock.config.java import JavaHome

PENSTOCK = str(Path(sys.executable).parent / "penstock")
TIMEOUT_S = 400  # a run takes half a minute, but minutes on a busy machine
SMALL = """
settings:
  spark.driver.memory: 1g
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
"""


@contextmanager
def started(
    folder: Path, broker: penstock.Broker, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own. Kills the process when the test ends."""
    process = subprocess.Popen(
        [PENSTOCK, "pipeline", "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **quick_start(), "PENSTOCK_BOOTSTRAP": broker.bootstrap_servers},
        process_group=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "sent",
    [
        signal.SIGTERM,
        pytest.param(
            signal.SIGINT, marks=pytest.mark.skipif(not is_long(), reason="starts another Spark")
        ),
    ],
)
def test_run_shows_progress_and_stops_at_the_first_signal(
    java: JavaHome, broker: penstock.Broker, tmp_path: Path, topic_name: str, sent: signal.Signals
) -> None:
    """Terminals, `timeout` and service managers signal all processes of a group."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    create_topic(servers, f"{topic_name}.out")
    send(servers, topic_name, [Sent(b'{"n": %d}' % n) for n in range(1000)])
    written = write_pipeline(
        tmp_path,
        SMALL
        + """
sources:
  numbers: {topic: "{topic}", value: {format: json, schema: n INT}}
sinks:
  out: {query: SELECT n FROM numbers WHERE n < 10, topic: "{topic}.out"}
""",
        {"topic": topic_name},
    )
    with started(tmp_path, broker, str(written.path), "--master", "local[2]") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        first = process.stderr.readline()
        assert first.startswith("starting Spark for pipeline p; its log is ")
        progress = process.stderr.readline()
        os.killpg(process.pid, sent)
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert progress.startswith("out: batch 0, 1,000 rows, ")
    assert progress.endswith(" rows/s, lag 0\n")
    assert (process.returncode, errors) == (0, "stopping; the next run continues from here\n")
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["sink", "batches", "rows"],
        ["out", "1", "1000"],
    ]
    assert values_of(broker, f"{topic_name}.out") == [{"n": n} for n in range(10)]
    assert (tmp_path / "checkpoints" / "p" / "spark.log").exists()


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        pytest.param(
            "{from: numbers, format: delta}",
            "sink out: Failed to find the data source: delta.",
            marks=pytest.mark.skipif(not is_long(), reason="starts another Spark"),
        ),
        pytest.param(
            "{query: SELECT m FROM numbers, format: noop}",
            "SQL of sink out: A column, variable, or function parameter with name `m` cannot be",
            marks=pytest.mark.skipif(not is_long(), reason="starts another Spark"),
        ),
    ],
)
def test_mistake_that_spark_finds_is_one_line(
    java: JavaHome,
    broker: penstock.Broker,
    tmp_path: Path,
    topic_name: str,
    sink: str,
    error: str,
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    written = write_pipeline(
        tmp_path,
        SMALL
        + """
sources:
  numbers: {topic: "{topic}", value: {format: json, schema: n INT}}
sinks:
  out: {sink}
""",
        {"topic": topic_name, "sink": sink},
    )
    with started(tmp_path, broker, str(written.path), "--master", "local[2]") as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (2, "")
    start, line = errors.splitlines()
    assert start.startswith("starting Spark for pipeline p")
    assert line.startswith(f"penstock: {written.path}:")
    assert error in line


@pytest.mark.skipif(not is_long(), reason="starts another Spark")
def test_end_of_sparks_java_process_is_one_line(
    java: JavaHome, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    send(broker.bootstrap_servers, topic_name, [Sent(b'{"n": 1}')])
    written = write_pipeline(
        tmp_path,
        SMALL
        + """
sources:
  numbers: {topic: "{topic}", start: earliest, value: {format: json, schema: n INT}}
sinks:
  out: {from: numbers, format: noop}
""",
        {"topic": topic_name},
    )
    with started(tmp_path, broker, str(written.path), "--master", "local[2]") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("starting Spark for pipeline p")
        assert process.stderr.readline().startswith("out: batch 0, 1 rows")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        (java_process,) = map(int, children.split())
        os.kill(java_process, signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    log_file = tmp_path / "checkpoints" / "p" / "spark.log"
    assert process.returncode == 1
    assert errors == (
        "penstock: Spark's Java process has ended before its work was done; "
        f"see {log_file} for why\n"
    )


DECLARED = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
PLACE = {"kafka.bootstrap.servers": os.environ["PENSTOCK_BOOTSTRAP"]}

@dp.table
def lines():
    options = PLACE | {"subscribe": "{topic}", "startingOffsets": "earliest"}
    records = spark.readStream.format("penstock").options(**options).load()
    return records.selectExpr("cast(value AS string) AS line", "offset")

dp.create_sink("out", "penstock", PLACE | {"topic": "{topic}.out"})

@dp.append_flow(target="out")
def to_topic():
    return spark.readStream.table("lines").selectExpr("to_json(struct(line, offset)) AS value")
"""


@pytest.mark.skipif(not is_long(), reason="starts Spark Connect twice")
def test_declared_pipeline_continues_with_each_run(
    java: JavaHome, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    create_topic(servers, f"{topic_name}.out")
    file = tmp_path / "declared.py"
    file.write_text(DECLARED.replace("{topic}", topic_name))
    runs = scaled(test=1, verify=2, release=2)
    for number in range(runs):
        send(servers, topic_name, [Sent(b"line %d" % number)])
        with started(tmp_path, broker, str(file), "--master", "local[2]") as process:
            out, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    expected = [{"line": f"line {n}", "offset": n} for n in range(runs)]
    assert values_of(broker, f"{topic_name}.out") == expected
    assert "Traceback" not in errors
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["sink", "batches", "rows"],
        ["spark_catalog.default.lines", "1", "1"],
        ["to_topic", "1", "1"],
    ]


SPECIFICATION = """
name: shop
storage: file://{folder}/storage
libraries: [{glob: {include: "steps/**"}}]
"""
VIEW = "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS lines FROM lines;"


@pytest.mark.skipif(not is_long(), reason="starts Spark Connect")
def test_specification_of_sparks_runner_has_files_in_python_and_sql(
    java: JavaHome, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    create_topic(broker.bootstrap_servers, f"{topic_name}.out")
    send(broker.bootstrap_servers, topic_name, [Sent(b"a"), Sent(b"b")])
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "lines.py").write_text(DECLARED.replace("{topic}", topic_name))
    (tmp_path / "steps" / "counted.sql").write_text(VIEW)
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPECIFICATION.replace("{folder}", str(tmp_path)))
    with started(tmp_path, broker, str(spec), "--master", "local[2]") as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert len(values_of(broker, f"{topic_name}.out")) == 2
    assert list((tmp_path / "spark-warehouse").glob("counted/*.parquet"))


SERVER = """
import sys
from penstock.spark.pipeline.declared import server_address
from penstock.spark.session import session

settings = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
print(server_address(session("server", master="local[2]", config=settings)), flush=True)
sys.stdin.read()
"""


@contextmanager
def connect_server() -> Iterator[str]:
    """The address of a Spark Connect server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **quick_start()},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.skipif(not is_long(), reason="starts two Sparks")
def test_json_pipeline_runs_on_spark_connect(
    java: JavaHome, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    create_topic(servers, f"{topic_name}.out")
    send(servers, topic_name, [Sent(b'{"n": %d}' % n) for n in range(1000)])
    written = write_pipeline(
        tmp_path,
        """
sources:
  numbers: {topic: "{topic}", start: earliest, value: {format: json, schema: n INT}}
sinks:
  out: {query: SELECT n FROM numbers WHERE n < 10, topic: "{topic}.out"}
""",
        {"topic": topic_name},
    )
    with connect_server() as address:
        arguments = (str(written.path), "--remote", address, "--once")
        with started(tmp_path, broker, *arguments) as process:
            out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors.count("\n")) == (0, 2), errors
    assert out.splitlines()[-1].split()[:3] == ["out", "1", "1000"]
    assert values_of(broker, f"{topic_name}.out") == [{"n": n} for n in range(10)]


def test_connect_server_that_is_not_there_is_one_line(
    broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    written = write_pipeline(
        tmp_path,
        """
sources:
  lines: {topic: "{topic}", value: {format: text}}
sinks:
  out: {from: lines, format: noop}
""",
        {"topic": topic_name},
    )
    arguments = (str(written.path), "--remote", "sc://127.0.0.1:1")
    with started(tmp_path, broker, *arguments) as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith(
        "penstock: no Spark Connect server listens at 127.0.0.1:1 ("
    )
    assert "Traceback" not in errors


def test_signal_ends_the_wait_for_a_connect_server_that_does_not_answer(
    broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    written = write_pipeline(
        tmp_path,
        """
sources:
  lines: {topic: "{topic}", value: {format: text}}
sinks:
  out: {from: lines, format: noop}
""",
        {"topic": topic_name},
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with started(tmp_path, broker, str(written.path), "--remote", f"sc://{address}") as process:
            probe, request = listener.accept()[0], listener.accept()[0]
            os.killpg(process.pid, signal.SIGTERM)
            _, errors = process.communicate(timeout=TIMEOUT_S)
            probe.close()
            request.close()
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        f"penstock: stopped before the Spark Connect server at {address} answered; nothing was run"
    )
