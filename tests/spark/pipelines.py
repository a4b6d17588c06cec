"""Pipelines for tests: written as a file, run on the tests' Spark, and what came of it."""

from __future__ import annotations

import json
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


class Written(NamedTuple):
    """A pipeline's file, in a folder of its own."""

    path: Path
    text: str

    def read(self) -> Pipeline:
        folder = self.path.parent
        return read_pipeline("p.yaml", self.text, lambda name: (folder / name).read_text())


def write_pipeline(folder: Path, text: str, names: Mapping[str, str] | None = None) -> Written:
    """`{name}` in the text is replaced; checkpoints go into the folder."""
    for name, value in {"folder": str(folder), **(names or {})}.items():
        text = text.replace("{" + name + "}", value)
    path = folder / "p.yaml"
    path.write_text(f"checkpoints: {folder}/checkpoints\n{text}")
    return Written(path, path.read_text())


def run_once(
    written: Written, spark: SparkSession, broker: penstock.Broker
) -> dict[str, QueryTotals]:
    """Everything that is there, read and written."""
    return run(written, spark, broker)


def run(
    written: Written,
    spark: SparkSession,
    broker: penstock.Broker,
    *,
    once: bool = True,
    stop_when: int | None = None,
) -> dict[str, QueryTotals]:
    """`stop_when`: ends when a query has read so many rows."""
    stop, rows = threading.Event(), 0

    def show(progress: PipelineProgress) -> None:
        nonlocal rows
        rows += progress.rows
        if stop_when is not None and rows >= stop_when:
            stop.set()

    asked = PipelineRun(
        bootstrap=broker.bootstrap_servers, once=once, stop=stop, show=show, note=lambda _: None
    )
    totals = run_pipeline(written.read(), spark, asked)
    assert not spark.streams.active
    return totals


def records_of(broker: penstock.Broker, topic: str) -> list[Record]:
    found = read_records(broker.bootstrap_servers, topic)
    return [record for number in sorted(found) for record in found[number]]


def values_of(broker: penstock.Broker, topic: str) -> list[Any]:
    """Of JSON, sorted by their texts."""
    values = sorted(bytes(record.value or b"") for record in records_of(broker, topic))
    return [json.loads(value) for value in values]
