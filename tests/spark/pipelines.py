"""Pipelines for tests: written to a file, run on the tests' Spark, and their output."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from tests.spark.written import read_records

import penstock
from penstock.protocol.records import Record
from penstock.spark.pipeline.progress import PipelineProgress, QueryTotals
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.run import PipelineRun, run_pipeline
from penstock.spark.pipeline.spec import Pipeline

FLAGS = re.DOTALL | re.MULTILINE
ROOT = Path(__file__).parents[2]


def documented(name: str) -> str:
    """The example of docs/pipelines.md whose first line is a comment with this file name."""
    blocks = re.findall(r"^```\w+\n(.*?)^```", (ROOT / "docs/pipelines.md").read_text(), FLAGS)
    (block,) = [block for block in blocks if re.match(rf"(?:#|--) {re.escape(name)}\b", block)]
    return str(block)


class Written(NamedTuple):
    """A pipeline's file in its own folder."""

    path: Path
    text: str

    def read(self) -> Pipeline:
        folder = self.path.parent
        return read_pipeline(
            "p.yaml", self.text, lambda name: (folder / name).read_text(), str(folder)
        )


def write_pipeline(folder: Path, text: str, names: Mapping[str, str] | None = None) -> Written:
    """Writes the file; `{name}` in the text is replaced, and checkpoints go into the folder."""
    for name, value in {"folder": str(folder), **(names or {})}.items():
        text = text.replace("{" + name + "}", value)
    path = folder / "p.yaml"
    path.write_text(f"checkpoints: {folder}/checkpoints\n{text}")
    return Written(path, path.read_text())


def run_once(
    written: Written, spark: SparkSession, broker: penstock.Broker
) -> dict[str, QueryTotals]:
    """Reads and writes all available data."""
    return run(written, spark, broker)


def run(
    written: Written,
    spark: SparkSession,
    broker: penstock.Broker,
    *,
    once: bool = True,
    stop_when: int | None = None,
) -> dict[str, QueryTotals]:
    """`stop_when` ends the run once this many rows have been read."""
    return _run(written.read(), spark, broker, once=once, stop_when=stop_when)


def run_file(path: Path, spark: SparkSession, broker: penstock.Broker) -> dict[str, QueryTotals]:
    """Any file that `penstock pipeline run --once` takes."""
    folder = path.parent
    pipeline = read_pipeline(str(path), path.read_text(), lambda name: (folder / name).read_text())
    return _run(pipeline, spark, broker, once=True, stop_when=None)


def _run(
    pipeline: Pipeline,
    spark: SparkSession,
    broker: penstock.Broker,
    *,
    once: bool,
    stop_when: int | None,
) -> dict[str, QueryTotals]:
    stop, rows = threading.Event(), 0

    def show(progress: PipelineProgress) -> None:
        nonlocal rows
        rows += progress.rows
        if stop_when is not None and rows >= stop_when:
            stop.set()

    options = PipelineRun(
        bootstrap=broker.bootstrap_servers, once=once, stop=stop, show=show, note=lambda _: None
    )
    totals = run_pipeline(pipeline, spark, options)
    assert not spark.streams.active
    return totals


def records_of(broker: penstock.Broker, topic: str) -> list[Record]:
    by_partition = read_records(broker.bootstrap_servers, topic)
    return [record for partition in sorted(by_partition) for record in by_partition[partition]]


def values_of(broker: penstock.Broker, topic: str) -> list[Any]:
    """JSON values, sorted by their text."""
    values = sorted(bytes(record.value or b"") for record in records_of(broker, topic))
    return [json.loads(value) for value in values]
