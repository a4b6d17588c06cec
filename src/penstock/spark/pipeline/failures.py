"""What keeps a pipeline from running that is not in its file: one family, told without a trace."""


class PipelineFailed(Exception):
    """The text says what, where and what to do next."""


class NotReady(PipelineFailed):
    """The cluster cannot serve this pipeline as it is."""


class SparkMissing(PipelineFailed):
    """PySpark is not installed, or cannot be started."""


class QueryFailed(PipelineFailed):
    """A query of a pipeline ended by itself."""
