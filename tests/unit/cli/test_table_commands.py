"""`penstock table` without Spark: invalid options, and the output of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.table_commands import app
from penstock.cli.table_output import Display, show_totals
from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.spec import TableFormat, TableSpec, ValueKind
from penstock.spark.tables.sync import SyncProgress
from penstock.spark.tables.topic_tables import read_settings


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["orders", "--value", "json"], "options that describe a new table need --format"),
        (["--format", "delta"], "--format needs a TOPIC"),
        (["orders", "--format", "orc"], "write one of delta, iceberg, parquet"),
        (["orders", "--format", "delta", "--schema", "a INT"], "for JSON values"),
        (
            ["orders", "--format", "delta", "--dir", "s3://bucket/x"],
            "must be a local or mounted folder",
        ),
        (["orders", "--format", "delta", "--schema-file", "nowhere.avsc"], "nowhere.avsc"),
    ],
)
def test_invalid_options_exit_2_before_contacting_the_cluster(
    arguments: list[str], expected: str
) -> None:
    done = CliRunner().invoke(app, ["sync", *arguments, "--bootstrap", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert expected in done.stderr


def test_unreachable_cluster_exits_1() -> None:
    arguments = ["sync", "orders", "--format", "delta", "--bootstrap", "127.0.0.1:1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "127.0.0.1:1" in done.stderr


def test_status_of_a_folder_without_tables_exits_1(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["status", "--dir", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stderr == f"penstock: there are no tables in {tmp_path}\n"


def test_progress_is_a_line_or_a_json_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = SyncProgress(topic="orders", rows=5000, bad=2, files=3, lag=1234, batch_ms=500)
    Display(as_json=False).show(progress)
    assert capsys.readouterr().err == (
        "orders: 5,000 records, 2 dead letters, 10,000 records/s, lag 1,234\n"
    )
    display = Display(as_json=True)
    display.show(progress)
    display.show(progress._replace(lag=0))
    show_totals(display.totals, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["lag"] == 1234
    assert lines[2]["tables"]["orders"] == {
        "commits": 2,
        "rows": 10_000,
        "dead_letters": 4,
        "busy_ms": 1000,
        "lag": 0,
    }


def test_topic_config_describes_its_table() -> None:
    settings = {
        "penstock.table.format": "iceberg",
        "penstock.table.value": "json",
        "penstock.table.partition.by": "day(_timestamp), country",
        "penstock.table.upsert": "false",
    }
    assert read_settings("orders", settings) == TableSpec(
        topic="orders",
        format=TableFormat.ICEBERG,
        value=ValueKind.JSON,
        evolves=True,
        partition_by=("day(_timestamp)", "country"),
    )
    assert read_settings("orders", {**settings, "penstock.table.format": "none"}) is None
    assert read_settings("orders", {}) is None


WANTED = {
    "penstock.table.format": "delta",
    "penstock.table.value": "json",
    "penstock.table.partition.by": "",
    "penstock.table.upsert": "false",
    "penstock.table.schema": "",
    "penstock.table.registry.prefix": "false",
}


def test_topic_config_can_have_the_columns() -> None:
    columns = {"penstock.table.schema": "country STRING, at TIMESTAMP"}
    divided = {"penstock.table.partition.by": "country"}
    assert read_settings("orders", {**WANTED, **columns, **divided}) == TableSpec(
        topic="orders",
        format=TableFormat.DELTA,
        value=ValueKind.JSON,
        columns="country STRING, at TIMESTAMP",
        partition_by=("country",),
    )


def test_topic_config_can_have_an_avro_schema() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    settings = {
        **WANTED,
        "penstock.table.value": "avro",
        "penstock.table.schema": json.dumps(schema),
        "penstock.table.registry.prefix": "true",
    }
    spec = read_settings("orders", settings)
    assert spec is not None
    assert (spec.avro, spec.skip_bytes, spec.columns, spec.evolves) == (schema, 5, None, False)


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (
            "json",
            "n NUMBER",
            r"config of topic orders describes an invalid table: column n: 'NUMBER'",
        ),
        ("raw", "n INT", "a schema of columns is for JSON values"),
        ("avro", "", "Avro values and an Avro schema need each other"),
        ("avro", "n INT", "its Avro schema is not valid JSON"),
        ("avro", '"long"', "the schema must be a record"),
    ],
)
def test_invalid_schema_in_a_topic_config_is_reported_with_the_topic(
    value: str, schema: str, expected: str
) -> None:
    settings = {**WANTED, "penstock.table.value": value, "penstock.table.schema": schema}
    with pytest.raises(BadTableOption, match=expected):
        read_settings("orders", settings)
