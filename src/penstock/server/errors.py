"""Why a broker does not start. What ends a running one is in `lifecycle`."""


class StartRefused(Exception):
    """The broker cannot start with this configuration; the message says what to change."""
