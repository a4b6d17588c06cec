"""Shared by commands that start Spark: the --master option and error handling.

Exit code 2 for invalid arguments, 1 for other errors; one line, without a stack trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from penstock.cli.client_config_option import client_settings
from penstock.cli.connect import fail, get_bootstrap

MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs.  [default: local[*]]"),
]


def get_spark_bootstrap(ctx: typer.Context, given: str | None) -> str:
    """The cluster's address; Spark reaches it with the client config of this command."""
    from penstock.client.errors import InvalidClientConfig
    from penstock.spark.connect.cluster_security import use_security

    bootstrap = get_bootstrap(ctx, given)
    try:
        use_security(bootstrap, client_settings())
    except InvalidClientConfig as error:
        fail(str(error), 2)
    return bootstrap


@contextmanager
def exit_on_spark_errors() -> Iterator[None]:
    """Prints errors of jobs and tables, and exits."""
    from penstock.client.errors import ClientError
    from penstock.config.java import JavaMissing
    from penstock.spark.errors import SparkSourceError
    from penstock.spark.failures import SparkWorkFailed
    from penstock.spark.jobs.failures import JobRefused
    from penstock.spark.tables.errors import BadTableOption

    try:
        with _exit_on_pyspark_errors():
            yield
    except (JobRefused, BadTableOption) as error:
        fail(str(error), 2)
    except (SparkWorkFailed, JavaMissing, ClientError, SparkSourceError) as error:
        fail(str(error), 1)


@contextmanager
def _exit_on_pyspark_errors() -> Iterator[None]:
    """Prints Spark's own errors in short, and fails if PySpark is not installed."""
    from penstock.spark.pipeline.launch import check_spark

    check_spark()
    from penstock.spark.session.spark_errors import SPARK_ERRORS
    from penstock.spark.session.spark_messages import explain

    try:
        yield
    except SPARK_ERRORS as error:
        fail(explain(str(error)), 1)
