"""Formats a log event as a line of text or as a JSON object. Pure.

Invariants: one event cannot look like two. Text indents further lines of a message and quotes
values; JSON escapes them. Both cut what is too long: names that clients choose may have 32,767
characters, and lines end up in memory and on disks of others.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.logs.levels import level_name

# Compiled where it is needed: that takes a millisecond of every start.
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
_QUOTED = frozenset(' "=\\')
MAX_MESSAGE_LENGTH = 16_384  # the stack of a stall fits
MAX_VALUE_LENGTH = 1_024
_JSON_TYPES = (str, int, float, bool, type(None))


class LogEvent(NamedTuple):
    time_s: float  # since the epoch
    level: int
    broker_id: int | None  # None: not known yet
    component: str
    event: str
    message: str
    fields: Mapping[str, object]


def format_text(event: LogEvent) -> str:
    """`2026-11-18T04:55:15.123Z INFO broker=1 controller broker_left: message key=value`."""
    broker = "" if event.broker_id is None else f" broker={event.broker_id}"
    text = _cut(event.message, MAX_MESSAGE_LENGTH)
    message = f": {_indent(text)}" if text else ""
    fields = "".join(f" {name}={_quote(value)}" for name, value in event.fields.items())
    if fields and "\n" in message:  # the stack of a stall comes last
        head, _, rest = message.partition("\n")
        message, fields = f"{head}{fields}\n{rest}", ""
    start = f"{format_time(event.time_s)} {level_name(event.level)}{broker}"
    return f"{start} {event.component} {event.event}{message}{fields}"


def format_json(event: LogEvent) -> str:
    line: dict[str, object] = {
        "time": format_time(event.time_s),
        "level": level_name(event.level),
        "broker": event.broker_id,
        "component": event.component,
        "event": event.event,
    }
    if event.message:
        line["message"] = _cut(event.message, MAX_MESSAGE_LENGTH)
    for name, value in event.fields.items():
        line.setdefault(name, _as_json(value))
    return json.dumps(line, separators=(",", ":"))


def format_time(time_s: float) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    whole_s = int(time_s)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_s))
    return f"{moment}.{int((time_s - whole_s) * 1000):03d}Z"


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[:length]}... ({len(text) - length} more characters)"


def _indent(message: str) -> str:
    if message.isprintable():
        return message
    return re.sub(_CONTROL, _escape, message.rstrip("\n")).replace("\n", "\n    ")


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _quote(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, Iterable) and _is_list(value):
        text = ",".join(str(item) for item in value)
    else:
        text = str(value)
    text = _cut(text, MAX_VALUE_LENGTH)
    is_plain = text and text.isprintable() and _QUOTED.isdisjoint(text)
    return text if is_plain else json.dumps(text)


def _as_json(value: object) -> object:
    if isinstance(value, str):
        return _cut(value, MAX_VALUE_LENGTH)
    if isinstance(value, _JSON_TYPES):
        return value
    if isinstance(value, Iterable) and _is_list(value):
        return [_as_json(item) for item in value]
    return _cut(str(value), MAX_VALUE_LENGTH)


def _is_list(value: object) -> bool:
    """A named tuple, such as a TopicPartition, is one value."""
    return type(value) is tuple or not isinstance(value, tuple)


FORMATS = {"text": format_text, "json": format_json}
