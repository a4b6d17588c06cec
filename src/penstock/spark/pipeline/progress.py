"""What a running query says about itself, as a few figures. Pure: Spark's JSON comes in."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.offset_json import Offsets, read_offset


class PipelineProgress(NamedTuple):
    """One micro-batch of one sink."""

    sink: str
    batch: int
    rows: int  # that came in
    rows_per_s: float
    batch_ms: int
    lag: int | None  # records that the topics hold and that were not read yet; None: not known


class QueryTotals(NamedTuple):
    """Of a query since this run began."""

    batches: int = 0
    rows: int = 0
    busy_ms: int = 0
    lag: int | None = None
    last_batch: int = -1

    def after(self, progress: PipelineProgress) -> "QueryTotals":
        return QueryTotals(
            self.batches + 1,
            self.rows + progress.rows,
            self.busy_ms + progress.batch_ms,
            progress.lag,
            progress.batch,
        )

    @property
    def rows_per_s(self) -> float:
        return self.rows * 1000 / self.busy_ms if self.busy_ms else 0.0


def read_progress(sink: str, told: Mapping[str, Any]) -> PipelineProgress:
    """From the JSON of Spark's StreamingQueryProgress."""
    batch_ms = int(told.get("durationMs", {}).get("triggerExecution", 0))
    rows = int(told.get("numInputRows", 0))
    return PipelineProgress(
        sink=sink,
        batch=int(told["batchId"]),
        rows=rows,
        rows_per_s=rows * 1000 / batch_ms if batch_ms else 0.0,
        batch_ms=batch_ms,
        lag=_lag(told.get("sources", [])),
    )


def end_offsets(told: Mapping[str, Any]) -> Offsets:
    """Of all topics that the query reads; the slower where it reads one twice."""
    ends: dict[TopicPartition, int] = {}
    for source in told.get("sources", []):
        for place, offset in (_offsets(source.get("endOffset")) or {}).items():
            ends[place] = min(offset, ends.get(place, offset))
    return ends


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    lags = [each for each in map(_lag_of, sources) if each is not None]
    return sum(lags) if lags else None


def _lag_of(source: Mapping[str, Any]) -> int | None:
    """None where offsets are not those of topics."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())


def _offsets(told: Any) -> Offsets | None:
    try:
        parsed = json.loads(told) if isinstance(told, str) else told
        return read_offset(parsed).offsets if isinstance(parsed, Mapping) else None
    except (ValueError, TypeError, AttributeError):
        return None
