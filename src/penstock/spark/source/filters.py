"""Filter pushdown of batch queries: filters on topic, partition, offset and timestamp narrow what
is read.

Spark still applies every filter to the rows, so a filter that is not understood here only costs
time.
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
    "in": lambda value, values: value in values,
    "starts with": lambda value, prefix: value.startswith(prefix),
}
_COLUMNS = {"topic", "partition", "offset", "timestamp"}


def parse_filters(filters: Iterable[ds.Filter]) -> list[PushedFilter]:
    pushed = []
    for spark_filter in filters:
        comparison = _COMPARISONS.get(type(spark_filter))
        column: tuple[str, ...] = getattr(spark_filter, "attribute", ())
        if comparison is not None and len(column) == 1 and column[0] in _COLUMNS:
            value: Any = spark_filter.value  # type: ignore[attr-defined] # all of these have one
            if value is not None:
                pushed.append(PushedFilter(column[0], comparison, value))
    return pushed


def narrow_ranges(
    ranges: Iterable[OffsetRange], pushed: Sequence[PushedFilter]
) -> list[OffsetRange]:
    """The parts of the ranges that can hold matching rows."""
    narrowed = (_cut(wanted, pushed) for wanted in ranges if _may_match(wanted.tp, pushed))
    return [wanted for wanted in narrowed if wanted.size]


def least_time_ms(pushed: Iterable[PushedFilter]) -> int | None:
    """No record older than this matches. There is no upper bound, because producers choose
    timestamps, so a later offset may have an older one."""
    bounds = [_lower_ms(comparison) for comparison in pushed if comparison.column == "timestamp"]
    return max((bound for bound in bounds if bound is not None), default=None)


def _may_match(tp: TopicPartition, pushed: Iterable[PushedFilter]) -> bool:
    values = {"topic": tp.topic, "partition": tp.partition}
    return all(
        _TESTS[comparison.comparison](values[comparison.column], comparison.value)
        for comparison in pushed
        if comparison.column in values
    )


def _cut(whole: OffsetRange, pushed: Iterable[PushedFilter]) -> OffsetRange:
    start, end = whole.start, whole.end
    for comparison in pushed:
        if comparison.column == "offset":
            lowest, highest = _offsets(comparison)
            start, end = max(start, lowest), min(end, highest + 1)
    return OffsetRange(whole.tp, start, max(start, end))


_NO_LIMIT = 2**63


def _offsets(pushed: PushedFilter) -> tuple[int, int]:
    """The lowest and highest offset that can match."""
    value = pushed.value
    match pushed.comparison:
        case "=":
            return value, value
        case ">":
            return value + 1, _NO_LIMIT
        case ">=":
            return value, _NO_LIMIT
        case "<":
            return 0, value - 1
        case "<=":
            return 0, value
        case "in":
            offsets = [offset for offset in value if offset is not None]
            return min(offsets, default=1), max(offsets, default=0)
    return 0, _NO_LIMIT


def _lower_ms(pushed: PushedFilter) -> int | None:
    """Rounded down, because records have milliseconds and filters microseconds, so that no matching
    record is missed."""
    times = pushed.value if pushed.comparison == "in" else [pushed.value]
    if pushed.comparison not in ("=", ">", ">=", "in"):
        return None
    datetimes = [time for time in times if isinstance(time, datetime)]
    if not datetimes or len(datetimes) != len(times):
        return None
    return max(0, min(math.floor(time.timestamp() * 1000) for time in datetimes))
