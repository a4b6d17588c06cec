"""EventLogger, the port through which all parts of a broker log: an event, a message, fields.

It knows neither the format nor where lines go: `broker_loggers` builds it on `logging`, tests on a
list. Invariant: an event below the level costs one comparison and formats nothing.
"""

from collections.abc import Callable, Mapping

from penstock.logs.levels import DEBUG, ERROR, INFO, WARNING

Fields = Mapping[str, object]
IsEnabled = Callable[[int], bool]
Emit = Callable[[int, str, str, Fields], None]  # level, event, message, fields


class EventLogger:
    """One component's. The event is a name in snake_case that stays; the message is for people and
    may change; fields are for programs. May be called from any thread."""

    __slots__ = ("_emit", "is_enabled")

    def __init__(self, emit: Emit, is_enabled: IsEnabled = lambda level: True) -> None:
        self._emit = emit
        self.is_enabled = is_enabled

    def debug(self, event: str, message: str = "", /, **fields: object) -> None:
        if self.is_enabled(DEBUG):
            self._emit(DEBUG, event, message, fields)

    def info(self, event: str, message: str = "", /, **fields: object) -> None:
        if self.is_enabled(INFO):
            self._emit(INFO, event, message, fields)

    def warning(self, event: str, message: str = "", /, **fields: object) -> None:
        if self.is_enabled(WARNING):
            self._emit(WARNING, event, message, fields)

    def error(self, event: str, message: str = "", /, **fields: object) -> None:
        if self.is_enabled(ERROR):
            self._emit(ERROR, event, message, fields)

    def log(self, level: int, event: str, message: str, fields: Fields) -> None:
        if self.is_enabled(level):
            self._emit(level, event, message, fields)

    def prefixed(self, prefix: object) -> "EventLogger":
        """The same logger with this object's text before every message, such as a shard's."""

        def emit(level: int, event: str, message: str, fields: Fields) -> None:
            self._emit(level, event, f"{prefix}: {message}", fields)

        return EventLogger(emit, self.is_enabled)


def _ignore(level: int, event: str, message: str, fields: Fields) -> None:
    return


NO_LOGGER = EventLogger(_ignore, lambda level: False)


def message_logger(add: Callable[[str], object], level: int = WARNING) -> EventLogger:
    """A logger that passes on messages from this level on, for tests that read them."""

    def emit(_: int, event: str, message: str, fields: Fields) -> None:
        add(message or event)

    return EventLogger(emit, level.__le__)
