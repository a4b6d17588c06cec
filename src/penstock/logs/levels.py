"""Kafka's names of log levels and their numbers in the standard library's `logging`. Pure."""

import logging

TRACE = 5  # logging has no name for it
DEBUG = logging.DEBUG
INFO = logging.INFO
WARNING = logging.WARNING
ERROR = logging.ERROR
FATAL = logging.CRITICAL

LEVELS = {
    "TRACE": TRACE,
    "DEBUG": DEBUG,
    "INFO": INFO,
    "WARN": WARNING,
    "ERROR": ERROR,
    "FATAL": FATAL,
}
_NAMES = {number: name for name, number in LEVELS.items()}


def find_level(name: str) -> int | None:
    return LEVELS.get(name.upper())


def level_name(level: int) -> str:
    """The name of the level, or of the next one below a number that has none."""
    return _NAMES[max((number for number in _NAMES if number <= level), default=TRACE)]
