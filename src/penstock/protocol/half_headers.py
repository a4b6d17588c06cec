"""The headers and values by which clients send half messages and decide about them. Pure.

Clients write them, so nothing is taken on trust: what cannot be understood is an error.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from penstock.protocol.delay_headers import (
    DELAY_ID,
    DELAY_MS,
    DELIVER_AT,
    CancelRequest,
    InvalidDelay,
    find_delay_request,
    without_delay_headers,
)
from penstock.protocol.records import Record, RecordHeaders

HALF_ID = "penstock-half-id"
HALF_GROUP = "penstock-half-group"
HALF_TOPIC = "penstock-topic"  # in a check or an expired half: whose half it is
HALF_REASON = "penstock-half-reason"  # in the topic of expired ones
HALF_CHECK = "penstock-half-check"  # which check it is, from 1 on
HALF_RECORDS = "penstock-half-records"  # how many records the id has

HALF_SUFFIX = ".half"
DECISIONS_SUFFIX = ".half.decisions"
EXPIRED_SUFFIX = ".half.expired"
CHECKS_SUFFIX = ".half.checks"  # of a group

MAX_HALF_ID_BYTES = 255
DECISION_WORDS = (b"commit", b"rollback", b"check", b"revive")
_OWN = frozenset({HALF_ID, HALF_GROUP, HALF_TOPIC, HALF_REASON, HALF_CHECK, HALF_RECORDS})
_LEGAL_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,230}")


class InvalidHalf(ValueError):
    """The record is no half, or no decision."""


class HalfRequest(NamedTuple):
    half_id: str
    group: str
    delay_ms: int  # from the commit on
    deliver_at_ms: int  # not before; 0: no such time


def is_legal_group(name: str) -> bool:
    """Whether the topic of its checks can have such a name."""
    return _LEGAL_GROUP.fullmatch(name) is not None


def read_half(record: Record, groups: Collection[str]) -> HalfRequest:
    values: dict[str, bytes | None] = {}
    for name, value in record.headers:
        if name in (HALF_ID, HALF_GROUP):
            if name in values:
                raise InvalidHalf(f"the header {name} occurs twice")
            values[name] = value
    half_id, group = _read_text(values, HALF_ID), _read_text(values, HALF_GROUP)
    if group not in groups:
        raise InvalidHalf(
            f"the group {group!r} is not bound to this topic; bound are {', '.join(sorted(groups))}"
        )
    return HalfRequest(half_id, group, *_read_delay(record.headers))


def _read_text(values: dict[str, bytes | None], name: str) -> str:
    value = values.get(name)
    if not value or len(value) > MAX_HALF_ID_BYTES:
        size = "missing" if value is None else f"{len(value)} bytes long"
        raise InvalidHalf(f"the header {name} is {size}; it takes 1 to {MAX_HALF_ID_BYTES} bytes")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidHalf(f"the header {name} is not UTF-8: {value[:40]!r}") from None


def _read_delay(headers: RecordHeaders) -> tuple[int, int]:
    try:
        wanted = find_delay_request(headers, now_ms=0)
    except InvalidDelay as error:
        raise InvalidHalf(str(error)) from None
    if wanted is None:
        return 0, 0
    if isinstance(wanted, CancelRequest) or wanted.delay_id is not None:
        raise InvalidHalf(
            f"a half cannot have the header {DELAY_ID}, nor cancel a message: it has its half id. "
            f"{DELAY_MS} and {DELIVER_AT} are allowed"
        )
    is_absolute = any(name == DELIVER_AT for name, _ in headers)
    return (0, wanted.due_ms) if is_absolute else (wanted.due_ms, 0)


def read_decision(record: Record) -> tuple[str, bytes]:
    """The half id and one of DECISION_WORDS."""
    key = record.key
    if not key or len(key) > MAX_HALF_ID_BYTES:
        raise InvalidHalf(
            f"the key of a decision is its half id, of 1 to {MAX_HALF_ID_BYTES} bytes"
        )
    if record.value not in DECISION_WORDS:
        shown = "null" if record.value is None else repr(record.value[:40])
        raise InvalidHalf(
            f"the value of a decision is commit, rollback, check or revive, not {shown}"
        )
    try:
        return key.decode(), record.value
    except UnicodeDecodeError:
        raise InvalidHalf(f"the half id {key[:40]!r} is not UTF-8") from None


def without_half_headers(headers: RecordHeaders) -> RecordHeaders:
    """As its consumers get a message."""
    return tuple(header for header in without_delay_headers(headers) if header[0] not in _OWN)
