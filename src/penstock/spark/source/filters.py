"""Filters of a batch query that spare reading: on topic, partition, offset and timestamp.

Only narrows what is read: Spark still applies every filter to the rows, so that a filter that is
not understood here costs time and nothing else.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import datasource as ds

from penstock.model.ids import TopicPartition
from penstock.spark.source.plan import OffsetRange


class PushedFilter(NamedTuple):
    """`column comparison value`."""

    column: str
    comparison: str
    value: Any


_COMPARISONS = {
    ds.EqualTo: "=",
    ds.EqualNullSafe: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.In: "in",
    ds.StringStartsWith: "starts with",
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda each, values: each in values,
    "starts with": lambda each, prefix: each.startswith(prefix),
}
_COLUMNS = {"topic", "partition", "offset", "timestamp"}


def parse_filters(filters: Iterable[ds.Filter]) -> list[PushedFilter]:
    found = []
    for each in filters:
        comparison = _COMPARISONS.get(type(each))
        column: tuple[str, ...] = getattr(each, "attribute", ())
        if comparison is not None and len(column) == 1 and column[0] in _COLUMNS:
            value: Any = each.value  # type: ignore[attr-defined] # all of these have one
            if value is not None:
                found.append(PushedFilter(column[0], comparison, value))
    return found


def narrow_ranges(
    ranges: Iterable[OffsetRange], pushed: Sequence[PushedFilter]
) -> list[OffsetRange]:
    """What of the ranges can hold rows that pass."""
    kept = (each for each in ranges if _may_hold(each.tp, pushed))
    cut = (_cut(each, pushed) for each in kept)
    return [each for each in cut if each.size]


def least_time_ms(pushed: Iterable[PushedFilter]) -> int | None:
    """No record before this passes. There is no like bound above: a later record may be older, as
    its producer chose its time."""
    bounds = [_lower_ms(each) for each in pushed if each.column == "timestamp"]
    return max((each for each in bounds if each is not None), default=None)


def _may_hold(partition: TopicPartition, pushed: Iterable[PushedFilter]) -> bool:
    values = {"topic": partition.topic, "partition": partition.partition}
    return all(
        _TESTS[each.comparison](values[each.column], each.value)
        for each in pushed
        if each.column in values
    )


def _cut(whole: OffsetRange, pushed: Iterable[PushedFilter]) -> OffsetRange:
    start, end = whole.start, whole.end
    for each in pushed:
        if each.column == "offset":
            least, most = _offsets(each)
            start, end = max(start, least), min(end, most + 1)
    return OffsetRange(whole.tp, start, max(start, end))


_NO_MOST = 2**63


def _offsets(pushed: PushedFilter) -> tuple[int, int]:
    """The least and the greatest that can pass."""
    value = pushed.value
    match pushed.comparison:
        case "=":
            return value, value
        case ">":
            return value + 1, _NO_MOST
        case ">=":
            return value, _NO_MOST
        case "<":
            return 0, value - 1
        case "<=":
            return 0, value
        case "in":
            known = [each for each in value if each is not None]
            return min(known, default=1), max(known, default=0)
    return 0, _NO_MOST


def _lower_ms(pushed: PushedFilter) -> int | None:
    """Records count whole milliseconds, filters microseconds: rounded down, it spares a little
    less and misses nothing."""
    times = pushed.value if pushed.comparison == "in" else [pushed.value]
    if pushed.comparison not in ("=", ">", ">=", "in"):
        return None
    known = [each for each in times if isinstance(each, datetime)]
    if not known or len(known) != len(times):
        return None
    return max(0, min(math.floor(each.timestamp() * 1000) for each in known))
