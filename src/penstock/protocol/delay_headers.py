"""The headers by which a record asks to be delivered later, or cancels one that waits. Pure.

Clients write them, so nothing is taken on trust: a header that cannot be understood is an error,
never ignored, because its record would be delivered at once.
"""

from typing import NamedTuple

from penstock.protocol.records import RecordHeaders

DELIVER_AT = "penstock-deliver-at"  # milliseconds since 1970, in ASCII digits
DELAY_MS = "penstock-delay-ms"
DELAY_ID = "penstock-delay-id"
DELAY_CANCEL = "penstock-delay-cancel"  # the delay id of the message to cancel
REPLY_TOPIC = "penstock-reply-topic"

MAX_DELAY_ID_BYTES = 255
_MAX_DIGITS = 15  # until the year 33658
_NAMES = frozenset({DELIVER_AT, DELAY_MS, DELAY_ID, DELAY_CANCEL, REPLY_TOPIC})


class InvalidDelay(ValueError):
    """The record's headers ask for nothing that could be done."""


class DelayRequest(NamedTuple):
    due_ms: int
    delay_id: str | None
    delay_ms: int | None = None  # if that is what was asked for


class CancelRequest(NamedTuple):
    delay_id: str
    reply_topic: str | None


def find_delay_request(
    headers: RecordHeaders, *, now_ms: int
) -> DelayRequest | CancelRequest | None:
    """None for an ordinary record, and for a delay of 0. A repeat gets the same answer, however
    late it comes: a record whose time has passed is a message that is due at once."""
    if not any(name in _NAMES for name, _ in headers):
        return None
    values = _collect(headers)
    if DELAY_CANCEL in values:
        return _read_cancel(values)
    if DELIVER_AT not in values and DELAY_MS not in values:
        if DELAY_ID in values:
            raise InvalidDelay(f"{DELAY_ID} needs {DELIVER_AT} or {DELAY_MS}")
        return None  # a reply topic alone means nothing here
    return _read_delay(values, now_ms)


def without_delay_headers(headers: RecordHeaders) -> RecordHeaders:
    """As its consumers get a message: otherwise, it would be deferred again."""
    return tuple(header for header in headers if header[0] not in _NAMES)


def _collect(headers: RecordHeaders) -> dict[str, bytes | None]:
    values: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in _NAMES:
            if name in values:
                raise InvalidDelay(f"the header {name} occurs twice")
            values[name] = value
    return values


def _read_delay(values: dict[str, bytes | None], now_ms: int) -> DelayRequest | None:
    delay_id = _read_text(DELAY_ID, values[DELAY_ID]) if DELAY_ID in values else None
    if DELIVER_AT in values and DELAY_MS in values:
        raise InvalidDelay(f"use one of the headers {DELIVER_AT} and {DELAY_MS}, not both")
    if DELIVER_AT in values:
        return DelayRequest(_read_number(DELIVER_AT, values[DELIVER_AT]), delay_id)
    delay_ms = _read_number(DELAY_MS, values[DELAY_MS])
    return DelayRequest(now_ms + delay_ms, delay_id, delay_ms) if delay_ms else None


def _read_cancel(values: dict[str, bytes | None]) -> CancelRequest:
    if DELIVER_AT in values or DELAY_MS in values or DELAY_ID in values:
        raise InvalidDelay(f"a record with the header {DELAY_CANCEL} cannot wait itself")
    delay_id = _read_text(DELAY_CANCEL, values[DELAY_CANCEL])
    reply_topic = _read_text(REPLY_TOPIC, values[REPLY_TOPIC]) if REPLY_TOPIC in values else None
    return CancelRequest(delay_id, reply_topic)


def _read_number(name: str, value: bytes | None) -> int:
    if value is None or not value.isdigit() or len(value) > _MAX_DIGITS:
        shown = "null" if value is None else repr(value[:40])
        raise InvalidDelay(
            f"the header {name} is {shown}; it takes milliseconds, 1 to {_MAX_DIGITS} ASCII digits"
        )
    return int(value)


def _read_text(name: str, value: bytes | None) -> str:
    if not value or len(value) > MAX_DELAY_ID_BYTES:
        size = "null" if value is None else f"{len(value)} bytes"
        raise InvalidDelay(f"the header {name} has {size}; it takes 1 to {MAX_DELAY_ID_BYTES}")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidDelay(f"the header {name} is not UTF-8: {value[:40]!r}") from None
