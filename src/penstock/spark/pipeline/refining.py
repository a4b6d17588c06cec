"""Refines the rows of a source or view: event time, expectations, watermark, duplicates, in this
order, so that rows that are dropped do not move the watermark.

Violations are counted on their way, in each query that reads the rows; `progress` reads the counts.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.pipeline.progress import VIOLATIONS
from penstock.spark.pipeline.spec import Expectation, Refinement, ViolationPolicy
from penstock.spark.session.spark_messages import VIOLATION_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def refine(rows: "DataFrame", what: str, name: str, refinement: Refinement) -> "DataFrame":
    """`what` is "source" or "view"."""
    rows = with_event_time(rows, refinement)
    if refinement.expectations:
        rows = _checked(rows, what, name, refinement)
    if refinement.watermark is not None and rows.isStreaming:
        rows = rows.withWatermark(refinement.watermark.column, refinement.watermark.delay)
    if refinement.dedup is not None:
        by = list(refinement.dedup.by)
        rows = (
            rows.dropDuplicatesWithinWatermark(by) if rows.isStreaming else rows.dropDuplicates(by)
        )
    return rows


def with_event_time(rows: "DataFrame", refinement: Refinement) -> "DataFrame":
    watermark = refinement.watermark
    if watermark is None or watermark.expression is None:
        return rows
    return rows.withColumn(watermark.column, f.expr(watermark.expression.text))


def violation_reasons(refinement: Refinement, policy: ViolationPolicy) -> "Column":
    """Which expectations of this policy the row does not meet; null if it meets all."""
    reasons = [
        f.when(~_is_met(expectation), f.lit(_describe(expectation)))
        for expectation in refinement.expectations
        if expectation.otherwise is policy
    ]
    if not reasons:
        return f.lit(None).cast("string")
    text = f.concat_ws("; ", *reasons)
    return f.when(text != "", text)


def count_violations(rows: "DataFrame", refinement: Refinement) -> dict[str, int]:
    """By expectation, counted now: for rows that are no stream."""
    if not refinement.expectations:
        return {}
    counts = _counts(refinement)
    (row,) = with_event_time(rows, refinement).agg(*counts).collect()
    return {name: int(count or 0) for name, count in row.asDict().items()}


def _counts(refinement: Refinement) -> list["Column"]:
    return [
        f.count_if(~_is_met(expectation)).alias(expectation.name)
        for expectation in refinement.expectations
    ]


def _checked(rows: "DataFrame", what: str, name: str, refinement: Refinement) -> "DataFrame":
    rows = rows.observe(f"{VIOLATIONS}{name}", *_counts(refinement))
    for expectation in refinement.expectations:
        if expectation.otherwise is ViolationPolicy.FAIL:
            stops = f.raise_error(_complaint(rows, what, name, expectation)).cast("boolean")
            rows = rows.where(f.when(_is_met(expectation), f.lit(True)).otherwise(stops))
        else:
            rows = rows.where(_is_met(expectation))
    return rows


def _is_met(expectation: Expectation) -> "Column":
    """A condition that is null is not met."""
    return f.coalesce(f.expr(expectation.condition.text).cast("boolean"), f.lit(False))


def _describe(expectation: Expectation) -> str:
    return (
        f"expectation {expectation.name} is not met: {' '.join(expectation.condition.text.split())}"
    )


def _complaint(rows: "DataFrame", what: str, name: str, expectation: Expectation) -> "Column":
    shown = [field.name for field in rows.schema.fields if field.name != "_headers"]
    row = f.to_json(f.struct(*(f.col(f"`{name.replace('`', '``')}`") for name in shown)))
    return f.concat(
        f.lit(f"{VIOLATION_MARK}{_describe(expectation)}, in {what} {name}, by the row "),
        f.substring(row, 1, 200),
    )
