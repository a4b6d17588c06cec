"""What keeps a table from being kept or read; each error says what, where and what next."""

from penstock.spark.errors import SparkSourceError


class TableError(SparkSourceError):
    """A table, or what was asked of it, that cannot work."""


class BadTableOption(TableError):
    """What was asked for cannot be: wrong usage."""


class CommitConflict(TableError):
    """Somebody else changed the table since it was loaded; nothing of this commit is in it."""


class TableMissing(TableError):
    """There is no table at this place."""
