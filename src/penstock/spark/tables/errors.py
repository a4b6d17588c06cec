"""Errors of tables. Each message says what, where and what to do next."""

from penstock.spark.errors import SparkSourceError


class TableError(SparkSourceError):
    """A table cannot be synced or read as requested."""


class BadTableOption(TableError):
    """Invalid or contradicting options: wrong usage."""


class CommitConflict(TableError):
    """The table was changed concurrently since it was loaded; nothing of this commit is in it."""


class TableMissing(TableError):
    """There is no table in this folder."""
