"""Shared by producer and consumer: librdkafka's settings, its log, and its errors as ours."""

import enum
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.client.address import parse_bootstrap
from penstock.client.security.rdkafka_security import translate_security
from penstock.model.errors import ErrorCode, find_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# Silent unless the program adds a handler: librdkafka would log to stderr.
LOG = logging.getLogger("penstock.rdkafka")
LOG.addHandler(logging.NullHandler())


DEFAULT_METADATA_MAX_AGE_MS = 60_000  # until a new partition is seen, at most
_REFRESH_INTERVAL = "topic.metadata.refresh.interval.ms"


class LocalCode(enum.IntEnum):
    """librdkafka's own errors that matter here; confluent-kafka has them as private names."""

    BAD_MSG = -199
    BAD_COMPRESSION = -198
    TRANSPORT = -195
    RESOLVE = -193
    PARTITION_EOF = -191
    UNKNOWN_PARTITION = -190
    ALL_BROKERS_DOWN = -187
    STATE = -172
    FENCED = -144
    NO_OFFSET = -168
    MAX_POLL_EXCEEDED = -147


FENCED_CODES = frozenset(
    {LocalCode.FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Trouble:
    """The brokers' addresses and the last connection error, which explain a later timeout."""

    def __init__(self, bootstrap_servers: str) -> None:
        """The addresses are checked."""
        self.addresses = ",".join(str(address) for address in parse_bootstrap(bootstrap_servers))
        self.last: str | None = None  # None: no error since a broker was reached

    def note(self, error: "KafkaError") -> None:
        if self.last is None or error.code() != LocalCode.ALL_BROKERS_DOWN:  # it names no cause
            self.last = error.str()

    def clear(self) -> None:
        """A broker was reached."""
        self.last = None

    def explain(self, text: str) -> str:
        last = f"; last error: {self.last}" if self.last else ""
        return f"{text} (bootstrap {self.addresses}{last})"


def common_settings(client_id: str, trouble: Trouble, config: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's settings; those in `config` override ours. Raises InvalidClientConfig for
    security that would not be in effect."""
    return {
        "bootstrap.servers": trouble.addresses,
        "client.id": client_id,
        "logger": LOG,
        "error_cb": trouble.note,
        **translate_security(config),
    }


def metadata_settings(max_age_ms: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's settings for how soon a new partition is seen. Its metadata.max.age.ms only
    forgets; Java's, which looks again, is its topic.metadata.refresh.interval.ms."""
    look_again_ms = config.get(_REFRESH_INTERVAL, config.get("metadata.max.age.ms", max_age_ms))
    return {_REFRESH_INTERVAL: look_again_ms}


def refresh_interval_s(settings: Mapping[str, Any]) -> float:
    """How often a client looks for new partitions itself; infinite: never."""
    interval_ms = int(settings[_REFRESH_INTERVAL])
    return interval_ms / 1000 if interval_ms > 0 else math.inf


@contextmanager
def settings_checked() -> Iterator[None]:
    """Turn librdkafka's refusal of a setting, raised when a client is created, into a
    ValueError."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from error


def find_code(error: "KafkaError") -> ErrorCode | None:
    """The broker's error code; None for librdkafka's own codes, which are negative."""
    return find_error(error.code()) if error.code() > 0 else None
