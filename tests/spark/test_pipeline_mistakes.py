"""Error messages of a pipeline that cannot run: what, where, what next; no stack trace."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.pipelines import run, run_once, write_pipeline
from tests.spark.topics import Sent, create_topic, send
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.problems import PipelineInvalid

SQL = """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "user STRING, ms INT"}
views:
  slow: |
{sql}
sinks:
  out: {from: slow, format: noop}
"""
SQL_STARTS_AT = 9


@pytest.mark.parametrize(
    ("sql", "line", "expected"),
    [
        ("SELECT user\nFORM clicks", 2, "SQL of view slow: Syntax error at or near 'clicks'"),
        ("SELECT user,\n  mss\nFROM clicks", 2, "with name `mss` cannot be resolved. Did you mean"),
        ("SELECT 1\nFROM\n  clickz", 3, "The table or view `clickz` cannot be found"),
        ("SELECT ms + 'a', nofun(ms)\nFROM clicks", 1, "`nofun`"),
    ],
)
def test_sql_errors_are_reported_with_the_files_line(
    spark: SparkSession,
    broker: penstock.Broker,
    tmp_path: Path,
    topic_name: str,
    sql: str,
    line: int,
    expected: str,
) -> None:
    indented = "\n".join(f"    {line}" for line in sql.splitlines())
    written = write_pipeline(tmp_path, SQL, {"topic": topic_name, "sql": indented})
    with pytest.raises(PipelineInvalid) as failure:
        run_once(written, spark, broker)
    (message,) = str(failure.value).splitlines()
    assert message.startswith(f"p.yaml:{SQL_STARTS_AT + line - 1}: SQL of view slow: ")
    assert expected in message
    assert "SQLSTATE" not in message
    assert "Project" not in message


ONE_SINK = """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "user STRING, ms INT"}
sinks:
  out:
    query: SELECT count(*) AS clicks FROM clicks
    format: noop
    mode: {mode}
"""


def test_aggregate_that_cannot_be_appended_is_reported_with_its_sink(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    written = write_pipeline(tmp_path, ONE_SINK, {"topic": topic_name, "mode": "append"})
    with pytest.raises(PipelineInvalid, match=r"^p\.yaml:8: sink out: .*[Ww]atermark") as failure:
        run_once(written, spark, broker)
    assert "\n" not in str(failure.value)


TWO_SINKS = """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "user STRING, ms INT"}
  lines: {topic: "{topic}"}
sinks:
  counted: {query: SELECT count(*) FROM clicks, format: noop, mode: complete}
  copied: {from: lines, format: noop}
"""


def test_value_that_is_not_json_stops_all_queries_and_is_located(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    """Even if the query reads no column of the value."""
    create_topic(broker.bootstrap_servers, topic_name, partitions=3)
    send(broker.bootstrap_servers, topic_name, [Sent(b'{"ms": 1}', partition=2)] * 2)
    send(broker.bootstrap_servers, topic_name, [Sent(b"oh <no>", partition=2)])
    written = write_pipeline(tmp_path, TWO_SINKS, {"topic": topic_name})
    with pytest.raises(QueryFailed) as failure:
        run(written, spark, broker, once=False)
    assert str(failure.value) == (
        "p.yaml:9: counted: JSON of the schema of source clicks was expected in topic "
        f"{topic_name}, partition 2, offset 2, but the value starts with oh <no>; fix the record, "
        "or add `dead_letter: TOPIC` to the source to keep such records aside, or "
        "`bad_values: skip` to drop them"
    )
    assert not spark.streams.active


def test_topic_that_does_not_exist_fails_with_one_sentence(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    written = write_pipeline(tmp_path, ONE_SINK, {"topic": topic_name, "mode": "complete"})
    with pytest.raises(QueryFailed) as failure:
        run_once(written, spark, broker)
    message = str(failure.value)
    assert message.startswith("p.yaml:8: out: ")
    assert topic_name in message
    assert "Traceback" not in message
    assert "at org.apache" not in message


@pytest.mark.skipif(not is_long(), reason="runs a pipeline twice")
def test_changed_aggregate_names_the_folder_to_delete(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    send(broker.bootstrap_servers, topic_name, [Sent(b'{"ms": 1}')])
    names = {"topic": topic_name, "mode": "complete"}
    run_once(write_pipeline(tmp_path, ONE_SINK, names), spark, broker)
    send(broker.bootstrap_servers, topic_name, [Sent(b'{"ms": 2}')])
    changed = ONE_SINK.replace("count(*)", "count(*), sum(ms), max(ms)")
    assert changed != ONE_SINK
    with pytest.raises(QueryFailed) as failure:
        run_once(write_pipeline(tmp_path, changed, names), spark, broker)
    assert str(failure.value).startswith(
        "p.yaml:8: out: the query's aggregates or joins have changed, and what it kept in "
        f"{tmp_path}/checkpoints/p/out does not fit them: "
    )


def command(*arguments: str, bootstrap: str = "127.0.0.1:1") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["pipeline", *arguments, "--bootstrap", bootstrap])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_missing_topic_is_reported_before_spark_starts(
    broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    written = write_pipeline(tmp_path, ONE_SINK, {"topic": topic_name, "mode": "complete"})
    status, out, errors = command("run", str(written.path), bootstrap=broker.bootstrap_servers)
    assert (status, out) == (1, "")
    assert errors == (
        f"penstock: topic {topic_name} does not exist at {broker.bootstrap_servers}, and "
        f"{written.path} needs it: penstock topic create {topic_name}\n"
    )


def test_unreachable_broker_is_reported_before_spark_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        written = write_pipeline(tmp_path, ONE_SINK, {"topic": "clicks", "mode": "complete"})
        status, _, errors = command("run", str(written.path), bootstrap=address)
    assert status == 1
    assert errors.startswith(f"penstock: cannot reach a broker at {address}: ")
    assert "is the broker running? `penstock up` starts one here" in errors
    assert "Traceback" not in errors
