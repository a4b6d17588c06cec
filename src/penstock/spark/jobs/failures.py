"""What keeps a job from being done: one family, told without a trace."""


class JobFailed(Exception):
    """The text says what, where and what to do next."""


class JobRefused(JobFailed):
    """What was asked for cannot be meant: wrong usage."""


class NotReady(JobFailed):
    """The cluster cannot serve this job as it is."""


class JobStopped(JobFailed):
    """By whoever started it."""
