"""A streaming query's progress, parsed from Spark's JSON. Pure."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.offset_json import Offsets, read_offset
from penstock.spark.source.plan import OffsetsBehind

# The name of the count that each query of a pipeline has Spark make, and its column.
WRITTEN, WRITTEN_ROWS = "written", "rows"
# Prefix of the counts of rows that violate the expectations of a source or view.
VIOLATIONS = "violations of "


class PipelineProgress(NamedTuple):
    """One micro-batch of one sink."""

    sink: str
    batch: int
    rows: int  # read
    rows_per_s: float
    batch_ms: int
    lag: int | None  # records in the topics that are not read yet; None: not known
    written: int | None = None  # rows for the sink; None: not known
    violations: Mapping[str, int] = MappingProxyType({})  # by "relation.expectation"
    behind: OffsetsBehind | None = None  # of partitions; None: not known


class QueryTotals(NamedTuple):
    """Totals of a query since the run started."""

    batches: int = 0
    rows: int = 0
    busy_ms: int = 0
    lag: int | None = None
    last_batch: int = -1
    written: int | None = None  # None: not known for any batch
    violations: Mapping[str, int] = MappingProxyType({})  # by "relation.expectation"

    def after(self, progress: PipelineProgress) -> "QueryTotals":
        return QueryTotals(
            self.batches + 1,
            self.rows + progress.rows,
            self.busy_ms + progress.batch_ms,
            progress.lag,
            progress.batch,
            _add(self.written, progress.written),
            _sum(self.violations, progress.violations),
        )

    @property
    def rows_per_s(self) -> float:
        return self.rows * 1000 / self.busy_ms if self.busy_ms else 0.0


def read_progress(sink: str, progress_json: Mapping[str, Any]) -> PipelineProgress:
    """Parse the JSON of Spark's StreamingQueryProgress."""
    batch_ms = int(progress_json.get("durationMs", {}).get("triggerExecution", 0))
    rows = _rows(progress_json)
    return PipelineProgress(
        sink=sink,
        batch=int(progress_json["batchId"]),
        rows=rows,
        rows_per_s=rows * 1000 / batch_ms if batch_ms else 0.0,
        batch_ms=batch_ms,
        lag=_lag(progress_json.get("sources", [])),
        written=_written(progress_json),
        violations=_violations(progress_json),
        behind=_behind(progress_json.get("sources", [])),
    )


def _written(progress_json: Mapping[str, Any]) -> int | None:
    """Spark itself counts the reports of a Python sink's tasks, not rows."""
    counted = progress_json.get("observedMetrics", {}).get(WRITTEN, {}).get(WRITTEN_ROWS)
    return None if counted is None else int(counted)


def _violations(progress_json: Mapping[str, Any]) -> Mapping[str, int]:
    """Every expectation that is checked, also those that all rows meet."""
    return {
        f"{observed.removeprefix(VIOLATIONS)}.{name}": int(count)
        for observed, counts in progress_json.get("observedMetrics", {}).items()
        if observed.startswith(VIOLATIONS)
        for name, count in counts.items()
    }


def _sum(totals: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    return {name: totals.get(name, 0) + more.get(name, 0) for name in {**totals, **more}}


def _add(total: int | None, more: int | None) -> int | None:
    return total if more is None else (total or 0) + more


def _rows(progress_json: Mapping[str, Any]) -> int:
    """Spark Connect reports rows only for each source."""
    if "numInputRows" in progress_json:
        return int(progress_json["numInputRows"])
    return sum(int(source.get("numInputRows", 0)) for source in progress_json.get("sources", []))


def end_offsets(progress_json: Mapping[str, Any]) -> Offsets:
    """End offsets of all topics of the query; the lower ones if it reads a topic twice."""
    ends: dict[TopicPartition, int] = {}
    for source in progress_json.get("sources", []):
        for tp, offset in (_offsets(source.get("endOffset")) or {}).items():
            ends[tp] = min(offset, ends.get(tp, offset))
    return ends


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    lags = [lag for lag in map(_lag_of, sources) if lag is not None]
    return sum(lags) if lags else None


def _behind(sources: list[Mapping[str, Any]]) -> OffsetsBehind | None:
    """Over all partitions of all sources."""
    ends: dict[tuple[int, TopicPartition], int] = {}
    newest: dict[tuple[int, TopicPartition], int] = {}
    for number, source in enumerate(sources):
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is not None and latest is not None:
            ends.update({(number, tp): offset for tp, offset in end.items()})
            newest.update({(number, tp): offset for tp, offset in latest.items()})
    behinds = [max(0, offset - ends[key]) for key, offset in newest.items() if key in ends]
    if not behinds:
        return None
    return OffsetsBehind(min(behinds), max(behinds), sum(behinds) / len(behinds), sum(behinds))


def _lag_of(source: Mapping[str, Any]) -> int | None:
    """None if the source's offsets are not topic offsets."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(tp, offset)) for tp, offset in latest.items())


def _offsets(offset_json: Any) -> Offsets | None:
    try:
        parsed = json.loads(offset_json) if isinstance(offset_json, str) else offset_json
        return read_offset(parsed).offsets if isinstance(parsed, Mapping) else None
    except (ValueError, TypeError, AttributeError):
        return None
