"""Parses durations such as `10s` or `5 minutes` into Spark's interval strings."""

import re

_UNITS = {
    "ms": "milliseconds",
    "millisecond": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "second": "seconds",
    "m": "minutes",
    "min": "minutes",
    "minute": "minutes",
    "h": "hours",
    "hour": "hours",
    "d": "days",
    "day": "days",
}
_SPAN = re.compile(r"(\d+)\s*([a-z]+)", re.IGNORECASE)


def find_span(text: str) -> str | None:
    """Spark's interval string, or None if the text is not a duration. `0 seconds` is one."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    name = match[2].lower()
    unit = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    return f"{int(match[1])} {unit}" if unit else None
