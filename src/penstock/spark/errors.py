"""What a user of `format("penstock")` did or met that cannot work: one family, each error saying
what, where and what to do next.
"""


class SparkSourceError(ValueError):
    """An option, a schema or a place in the log that source or sink cannot work with."""
