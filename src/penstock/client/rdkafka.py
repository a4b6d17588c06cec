"""Shared by producer and consumer: librdkafka's settings, its log, and its errors as ours."""

import enum
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.client.address import parse_bootstrap
from penstock.model.errors import ErrorCode, find_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# Silent unless the program adds a handler: librdkafka would log to stderr.
LOG = logging.getLogger("penstock.rdkafka")
LOG.addHandler(logging.NullHandler())


class LocalCode(enum.IntEnum):
    """librdkafka's own errors that matter here; confluent-kafka has them as private names."""

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
    """The last connection error, which explains a later timeout."""

    def __init__(self) -> None:
        self.last: str | None = None

    def note(self, error: "KafkaError") -> None:
        self.last = error.str()

    def explain(self, text: str) -> str:
        return f"{text} (last trouble: {self.last})" if self.last else text


def common_settings(
    bootstrap_servers: str, client_id: str, trouble: Trouble, config: Mapping[str, Any]
) -> dict[str, Any]:
    """librdkafka's settings; those in `config` override ours. The bootstrap is checked first."""
    addresses = parse_bootstrap(bootstrap_servers)
    return {
        "bootstrap.servers": ",".join(str(address) for address in addresses),
        "client.id": client_id,
        "logger": LOG,
        "error_cb": trouble.note,
        **config,
    }


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
