"""Errors that prevent a broker's start. Those that end a running one are in `lifecycle`."""


class StartRefused(Exception):
    """The broker cannot start with this configuration; the message says what to change."""
