"""What commands that start Spark share: where it runs, and how failures end.

Exit code 2 for what cannot be meant, 1 for what the world says; in one line, without a trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from penstock.cli.connect import fail

MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs.  [default: local[*]]"),
]


@contextmanager
def exit_on_spark_errors() -> Iterator[None]:
    """Of jobs and tables."""
    from penstock.client.errors import ClientError
    from penstock.config.java import JavaMissing
    from penstock.spark.errors import SparkSourceError
    from penstock.spark.failures import SparkWorkFailed
    from penstock.spark.jobs.failures import JobRefused
    from penstock.spark.tables.errors import BadTableOption

    try:
        with _spark_errors_told():
            yield
    except (JobRefused, BadTableOption) as error:
        fail(str(error), 2)
    except (SparkWorkFailed, JavaMissing, ClientError, SparkSourceError) as error:
        fail(str(error), 1)


@contextmanager
def _spark_errors_told() -> Iterator[None]:
    """Spark's own, in words; and where there is no Spark."""
    from penstock.spark.pipeline.launch import check_spark

    check_spark()
    from pyspark.errors import PySparkException

    from penstock.spark.session.spark_messages import explain

    try:
        yield
    except PySparkException as error:
        fail(explain(str(error)), 1)
