"""Runs a pipeline: starts its queries, reports their progress, stops them together.

Invariant: when this returns or raises, no query of the pipeline is still running.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.connect.connections import settings_of, shared_client
from penstock.spark.pipeline.build import (
    Flow,
    build_dead_letters,
    build_flow,
    build_sources_and_views,
)
from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.group_progress import GroupProgress
from penstock.spark.pipeline.progress import (
    PipelineProgress,
    QueryTotals,
    end_offsets,
    read_progress,
)
from penstock.spark.pipeline.registered import with_registered_schemas
from penstock.spark.pipeline.spec import Pipeline
from penstock.spark.pipeline.writing import Query, start_query, write_once
from penstock.spark.session.spark_messages import explain, is_state_of_another_query
from penstock.spark.sink.stopping import end_left_overs
from penstock.spark.source.group_offsets import GroupOffsetPublisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.5
_PLANNED_EVERY_S = 0.05
_PLANNED_WITHIN_S = 60.0
_NOT_PLANNED = ("Initializing StreamExecution", "Initializing sources")  # Spark's status messages


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """The options of one run of a pipeline."""

    bootstrap: str
    once: bool  # read the available data, then end
    stop: threading.Event  # set it to end the run
    show: Callable[[PipelineProgress], None]  # called for each micro-batch
    note: Callable[[str], None]  # called with messages about other events


def run_pipeline(
    pipeline: Pipeline, spark: "SparkSession", run: PipelineRun
) -> dict[str, QueryTotals]:
    """Returns each query's totals. Raises PipelineInvalid or QueryFailed, with all queries
    stopped."""
    pipeline = with_registered_schemas(pipeline)
    relations = build_sources_and_views(pipeline, spark, run.bootstrap)
    flows = [build_flow(pipeline, spark, sink) for sink in pipeline.sinks]
    flows += build_dead_letters(pipeline, spark, run.bootstrap, relations)
    streams = []
    for flow in flows:
        if flow.rows.isStreaming:
            streams.append(flow)
        else:
            write_once(pipeline, flow, run.bootstrap)
            run.note(f"{flow.sink.name}: written")
    return _run_streams(pipeline, streams, run)


def _run_streams(
    pipeline: Pipeline, flows: Sequence[Flow], run: PipelineRun
) -> dict[str, QueryTotals]:
    queries: list[Query] = []
    watch = _Watch(pipeline, [flow.sink.name for flow in flows], run)
    try:
        for flow in flows:
            if run.stop.is_set():
                break
            # One by one, so that the running ones can be stopped when the next one fails.
            queries.append(start_query(pipeline, flow, run.bootstrap, once=run.once))
            _wait_until_planned(queries[-1], run.stop)
        watch.wait(queries)
    finally:
        for query in queries:
            query.running.stop()
        end_left_overs(run.bootstrap, [query.running.id for query in queries])
        watch.poll(queries, is_final=True)
    return watch.totals


def _wait_until_planned(query: Query, stop: threading.Event) -> None:
    """Waits for the query's Python process before the next query starts.

    Spark gives each process ten seconds to start, which is too short for several at once on a
    small or busy machine.
    """
    deadline = time.monotonic() + _PLANNED_WITHIN_S
    while query.running.isActive and time.monotonic() < deadline:
        if query.running.status["message"] not in _NOT_PLANNED or stop.wait(_PLANNED_EVERY_S):
            return


class _Watch:
    """Follows the queries of one run."""

    def __init__(self, pipeline: Pipeline, names: Sequence[str], run: PipelineRun) -> None:
        self.totals = {name: QueryTotals() for name in names}
        self._pipeline = pipeline
        self._run = run
        self._groups = GroupProgress(pipeline, names)
        self._published: dict[str, GroupOffsetPublisher] = {}

    def wait(self, queries: Sequence[Query]) -> None:
        """Returns when all queries have ended or the run is stopped; raises if one fails."""
        active = list(queries)
        while active and not self._run.stop.is_set():
            self._run.stop.wait(_POLL_S)
            ended = [query for query in active if not query.running.isActive]
            self.poll(active)
            for query in ended:
                self._check_end(query)
                active.remove(query)

    def poll(self, queries: Sequence[Query], *, is_final: bool = False) -> None:
        for query in queries:
            self._poll(query)
        for group, offsets in self._groups.offsets(is_final=is_final).items():
            if group not in self._published:
                client = shared_client(settings_of(self._run.bootstrap))
                self._published[group] = GroupOffsetPublisher(client, group)
            self._published[group].publish(offsets)

    def _poll(self, query: Query) -> None:
        """Records the batches since the last poll, as far as Spark keeps them."""
        last = query.running.lastProgress
        if last is None or last.batchId <= self.totals[query.name].last_batch:
            return
        for progress in query.running.recentProgress:
            if progress.batchId > self.totals[query.name].last_batch:
                self._record(query.name, json.loads(progress.json))

    def _record(self, name: str, progress_json: dict[str, object]) -> None:
        progress = read_progress(name, progress_json)
        self.totals[name] = self.totals[name].after(progress)
        self._groups.note(name, end_offsets(progress_json))
        self._run.show(progress)

    def _check_end(self, query: Query) -> None:
        error = query.running.exception()
        if error is not None:
            where = f"{self._pipeline.file}:{query.line}: {query.name}"
            raise QueryFailed(f"{where}: {_explain(str(error), query)}")


def _explain(error: str, query: Query) -> str:
    if is_state_of_another_query(error):
        return (
            f"the query's aggregates or joins have changed, and what it kept in {query.checkpoint} "
            "does not fit them: change them back, or delete that folder, and the query reads its "
            "topics anew"
        )
    return explain(error)
