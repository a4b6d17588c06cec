"""The headers by which a producer delays a record. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import ceil

from penstock.protocol.delay_headers import DELAY_ID, DELAY_MS, DELIVER_AT, MAX_DELAY_ID_BYTES

HeaderList = list[tuple[str, bytes | None]]


def with_delay(
    headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None,
    *,
    deliver_at: datetime | None,
    delay_s: float | None,
    delay_id: str | None,
) -> HeaderList | None:
    """The record's headers with those that delay it. A datetime without a zone is local time."""
    given = headers.items() if isinstance(headers, Mapping) else headers
    if deliver_at is None and delay_s is None and delay_id is None:
        return None if given is None else list(given)
    return [*(given or ()), *_delay_headers(deliver_at, delay_s, delay_id)]


def _delay_headers(
    deliver_at: datetime | None, delay_s: float | None, delay_id: str | None
) -> HeaderList:
    if (deliver_at is None) == (delay_s is None):
        raise ValueError("a delayed record has either deliver_at or delay_s")
    if deliver_at is not None:
        due = DELIVER_AT, ceil(deliver_at.timestamp() * 1000)
    else:
        assert delay_s is not None
        due = DELAY_MS, ceil(delay_s * 1000)
    if due[1] < 0:
        raise ValueError(f"{deliver_at or delay_s} is before 1970, or a negative delay")
    headers: HeaderList = [(due[0], b"%d" % due[1])]
    if delay_id is not None:
        encoded = delay_id.encode()
        if not 0 < len(encoded) <= MAX_DELAY_ID_BYTES:
            raise ValueError(f"a delay_id has 1 to {MAX_DELAY_ID_BYTES} bytes, not {len(encoded)}")
        headers.append((DELAY_ID, encoded))
    return headers
