"""Builds a broker's EventLoggers on the standard library's `logging`, and writes its lines.

A component `x` logs to the logger `penstock.x`, so that a program with a broker inside can filter
and redirect its events as any others. A broker in a process of its own writes them to stderr.
"""

import logging
import sys
from collections.abc import Callable

from penstock.logs.event_logger import EventLogger, Fields
from penstock.logs.formatters import FORMATS, LogEvent
from penstock.logs.levels import INFO, find_level

ROOT = "penstock"
COMPONENTS = (
    "authorizer",
    "config",
    "controller",
    "group_coordinator",
    "inter_broker",
    "metadata_store",
    "metrics",
    "network",
    "replication",
    "requests",
    "security",
    "server",
    "storage",
    "transaction_coordinator",
    "deferred_coordinator",
)


class BrokerLoggers:
    """The loggers of one broker. Every event carries its id, once that is known."""

    def __init__(self, broker_id: int | None = None) -> None:
        self.broker_id = broker_id
        self._loggers: dict[str, EventLogger] = {}

    def get(self, component: str) -> EventLogger:
        if component not in self._loggers:
            self._loggers[component] = self._build(component)
        return self._loggers[component]

    def _build(self, component: str) -> EventLogger:
        assert component in COMPONENTS, f"{component} is missing in COMPONENTS"
        logger = logging.getLogger(f"{ROOT}.{component}")

        def emit(level: int, event: str, message: str, fields: Fields) -> None:
            # Not logger.log(): it would walk the stack to find the caller's line.
            record = logging.LogRecord(
                logger.name, level, pathname="", lineno=0, msg=message, args=None, exc_info=None
            )
            record.event, record.fields, record.broker_id = event, fields, self.broker_id
            logger.handle(record)

        return EventLogger(emit, logger.isEnabledFor)


def to_event(record: logging.LogRecord) -> LogEvent:
    """Also of a record that is not ours, such as asyncio's."""
    prefix = f"{ROOT}."
    return LogEvent(
        time_s=record.created,
        level=record.levelno,
        broker_id=getattr(record, "broker_id", None),
        component=record.name.removeprefix(prefix),
        event=getattr(record, "event", "message"),
        message=_message_of(record),
        fields=getattr(record, "fields", {}),
    )


def _message_of(record: logging.LogRecord) -> str:
    """Messages of ours are not %-formatted: they may have a % from a client."""
    text = str(record.msg) if record.args is None else record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        import traceback

        text += "\n" + "".join(traceback.format_exception(*record.exc_info))
    return text


class EventFormatter(logging.Formatter):
    """For handlers of programs that have a broker inside and want its lines as it writes them."""

    def __init__(self, log_format: str = "text") -> None:
        super().__init__()
        self._format = FORMATS[log_format]

    def format(self, record: logging.LogRecord) -> str:
        return self._format(to_event(record))


class StderrHandler(logging.Handler):
    """One write per line, to what sys.stderr is now. A line that cannot be written is dropped: a
    broker does not end because nobody reads its log."""

    def __init__(self, format_event: Callable[[LogEvent], str]) -> None:
        super().__init__()
        self._format_event = format_event

    def emit(self, record: logging.LogRecord) -> None:
        line = self._format_event(to_event(record)) + "\n"
        try:
            sys.stderr.write(line)
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def write_to_stderr(log_format: str, level: str) -> None:
    """For a broker in a process of its own. Unknown values become the defaults: the caller checks
    the config later, and its refusal is logged here."""
    root = logging.getLogger(ROOT)
    root.setLevel(find_level(level) or INFO)
    root.propagate = False
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(StderrHandler(FORMATS.get(log_format, FORMATS["text"])))


def write_to_stderr_by_default(log_format: str, level: str) -> None:
    """For a broker inside another program, which may have handlers and levels of its own."""
    root = logging.getLogger(ROOT)
    if not root.hasHandlers():
        root.addHandler(StderrHandler(FORMATS.get(log_format, FORMATS["text"])))
    if root.level == logging.NOTSET:
        root.setLevel(find_level(level) or INFO)
