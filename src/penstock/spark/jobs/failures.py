"""Errors of jobs. Commands print them without a stack trace."""

from penstock.spark.failures import SparkWorkFailed


class JobFailed(SparkWorkFailed):
    """The job did not complete."""


class JobRefused(JobFailed):
    """The job's arguments are invalid: wrong usage."""


class JobStopped(JobFailed):
    """The job was stopped by its caller."""
