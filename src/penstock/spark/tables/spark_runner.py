"""Runs a table's tasks on Spark: one Spark task each, pickled both ways through Arrow."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class SparkRunner:
    """Works with any session, including Spark Connect."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def __call__(self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
        """Spark retries a failed task as configured, then raises its error."""
        sent = [pickle.dumps(task) for task in tasks]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    done = pickle.dumps(work(pickle.loads(sent[number])))  # noqa: S301 - our own
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([number]), pa.array([done], pa.binary())], ["number", "done"]
                    )

        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(run, "number bigint, done binary").collect()
        return [pickle.loads(row["done"]) for row in sorted(rows, key=lambda row: row["number"])]  # noqa: S301
