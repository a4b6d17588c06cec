"""The levels of a broker's loggers, as Kafka's resource BROKER_LOGGER shows and changes them
(KIP-412).

They belong to the process and are not stored: a restart resets them. `root` is the parent of all
loggers of the broker, not of the whole process.
"""

import logging

from penstock.logs.broker_loggers import COMPONENTS, ROOT
from penstock.logs.levels import LEVELS, level_name

ROOT_NAME = "root"  # Kafka's name of the parent


class UnknownLevel(Exception):
    """Not one of Kafka's level names."""


class UnknownLogger(Exception):
    """No component logs under this name."""


def list_levels() -> dict[str, str]:
    """The effective level of every logger, by name."""
    names = (ROOT_NAME, *(f"{ROOT}.{component}" for component in COMPONENTS))
    return {name: level_name(_standard(name).getEffectiveLevel()) for name in names}


def check_logger(name: str) -> None:
    if name not in list_levels():
        raise UnknownLogger(f"Logger {name} does not exist!")


def check_level(name: str, level: str) -> None:
    if level not in LEVELS:
        raise UnknownLevel(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )


def set_level(name: str, level: str) -> None:
    check_logger(name)
    check_level(name, level)
    _standard(name).setLevel(LEVELS[level])


def reset_level(name: str) -> None:
    """The root's level applies again."""
    check_logger(name)
    assert name != ROOT_NAME, "the root has no level to fall back to"
    _standard(name).setLevel(logging.NOTSET)


def _standard(name: str) -> logging.Logger:
    return logging.getLogger(ROOT if name == ROOT_NAME else name)
