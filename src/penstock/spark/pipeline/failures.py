"""Errors of a pipeline that are not mistakes in its file. Commands print them without a stack
trace.
"""

from penstock.spark.failures import SparkWorkFailed


class PipelineFailed(SparkWorkFailed):
    """The pipeline cannot run, or stopped running."""


class SparkMissing(PipelineFailed):
    """PySpark is not installed, or cannot be started."""


class QueryFailed(PipelineFailed):
    """A streaming query of the pipeline terminated with an error."""
