"""Errors of work on Spark (a pipeline, a job) that cannot run or did not complete.

Commands print these errors without a stack trace.
"""


class SparkWorkFailed(Exception):
    """The text says what failed, where, and what to do next."""


class ClusterNotReady(SparkWorkFailed):
    """The Kafka cluster cannot serve this work in its present state."""
