"""Enumerations of Kafka's admin requests, shared by the client and the controller."""

from enum import IntEnum


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs; APPEND and SUBTRACT apply to lists."""

    SET = 0
    DELETE = 1  # back to the default
    APPEND = 2
    SUBTRACT = 3


class ConfigResourceType(IntEnum):
    """What configs belong to, with Kafka's codes."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8  # the log levels of a broker (KIP-412)
    CLIENT_METRICS = 16
    GROUP = 32


class ElectionType(IntEnum):
    """The election types of ElectLeaders."""

    PREFERRED = 0  # the first replica of the assignment, if it is in sync
    UNCLEAN = 1  # the first live replica if no in-sync one is alive; loses the records it lacks
