"""Syncs a table with its topic, batch by batch: plan, let tasks write files, commit.

All state is in the table. Invariant: after a crash at any point, the next batch starts where the
last commit ended, so that every record is in the table once, as a row or as a dead letter.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.spark.sink.exactly_once.fail_points import halt_at
from penstock.spark.source.discovery import Discovery
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import split_ranges
from penstock.spark.source.read_task import read_settings
from penstock.spark.tables.errors import CommitConflict, TableError
from penstock.spark.tables.evolution import grow, join_fields
from penstock.spark.tables.opening import check_same_topic
from penstock.spark.tables.part_reader import LocatedPart
from penstock.spark.tables.part_writer import remove_parts
from penstock.spark.tables.parts import HeldRange, Part, TableChange
from penstock.spark.tables.plan import SyncPlan, TopicEdges, plan_sync
from penstock.spark.tables.rules import RunTasks, SyncRules, write_rules
from penstock.spark.tables.spec import TableSpec
from penstock.spark.tables.store import TableStore
from penstock.spark.tables.sync_fail_points import SyncFailPoint
from penstock.spark.tables.sync_task import SyncSettings, SyncTask, SyncTaskResult, run_sync_task
from penstock.spark.tables.table_schema import values_of_schema
from penstock.spark.tables.values import READ_COLUMNS

_MAX_SCHEMA_PASSES = 8  # over a batch whose values keep showing new fields
_MAX_CONFLICTS = 3  # in a row
_NO_TYPE = pa.null()


class SyncProgress(NamedTuple):
    """One committed batch."""

    topic: str
    rows: int
    bad: int  # of the rows, written as dead letters
    files: int
    lag: int
    batch_ms: int


class TableSync:
    """Syncs one table. `dead_letters` is its dead-letter table, if values can be bad."""

    def __init__(
        self,
        *,
        spec: TableSpec,
        store: TableStore,
        dead_letters: TableStore | None,
        source: SourceOptions,
        discovery: Discovery,
        find_topic_id: Callable[[], str | None],
        run_tasks: RunTasks,
        rules: SyncRules,
        note: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._store = store
        self._dead = dead_letters
        self._source = source
        self._discovery = discovery
        self._find_topic_id = find_topic_id
        self._run_tasks = run_tasks
        self._rules = rules
        self._note = note
        self._batches = 0  # attempted so far

    def run_batch(self) -> SyncProgress | None:
        """Commits the records since the last batch; None if there are none."""
        for _ in range(_MAX_CONFLICTS):
            try:
                return self._try_batch()
            except CommitConflict as conflict:
                self._note(f"{conflict}; planning again")
        raise TableError(
            f"{self._store.location} keeps being changed concurrently: is another sync running?"
        )

    def _try_batch(self) -> SyncProgress | None:
        began_at = time.monotonic()
        self._batches += 1
        self._store.load()
        plan = self._plan()
        if not plan.ranges:
            return None
        halt_at(SyncFailPoint.PLANNED, self._batches)
        results = self._write(plan)
        halt_at(SyncFailPoint.WRITTEN, self._batches)
        self._commit(plan, results)
        halt_at(SyncFailPoint.COMMITTED, self._batches)
        batch_ms = round((time.monotonic() - began_at) * 1000)
        return _progress(self._spec.topic, plan, results, batch_ms)

    def _plan(self) -> SyncPlan:
        spec = self._spec
        check_same_topic(self._store, self._find_topic_id())
        partitions = self._discovery.find_partitions()
        edges = TopicEdges(self._discovery.earliest(partitions), self._discovery.latest(partitions))
        most = self._rules.most_records
        plan = plan_sync(spec.topic, self._store.state.held, edges, most_records=most)
        for loss in plan.losses:
            if not self._rules.allows_loss:
                raise TableError(
                    f"{loss}, but missing in {self._store.location}. Continue without it with "
                    "--allow-loss, or start over in a new folder"
                )
            self._note(f"{loss}; continuing because of --allow-loss")
        return plan

    # Writing.

    def _write(self, plan: SyncPlan) -> list[SyncTaskResult]:
        """Runs the tasks, and again with more columns if values have new fields."""
        spec = self._spec
        infers_first = spec.infers and not values_of_schema(spec, self._store.schema)
        for _ in range(_MAX_SCHEMA_PASSES):
            results = self._run_tasks(run_sync_task, self._tasks(plan, infers_first))
            seen_fields = join_fields(result.seen_fields for result in results)
            if not self._grow(seen_fields) and not infers_first:
                return results
            self._discard(results)
            infers_first = False
        raise TableError(
            f"values of topic {spec.topic} show new fields in every pass: give a --schema"
        )

    def _grow(self, seen_fields: Sequence[pa.Field]) -> bool:
        spec = self._spec
        stored = values_of_schema(spec, self._store.schema)
        grown = grow(stored, seen_fields)
        if not grown.added:
            return False
        before = {field.name: field.type for field in stored}
        held = self._store.state.held
        self._store.add_columns(
            [field for field in grown.fields if before.get(field.name, _NO_TYPE) != field.type]
        )
        if self._store.state.held != held:  # adding columns did not conflict, but the plan is stale
            raise CommitConflict(f"{self._store.location} was synced concurrently")
        self._note(f"{spec.topic}: new columns {', '.join(grown.added)}")
        return True

    def _tasks(self, plan: SyncPlan, infers_first: bool) -> list[SyncTask]:
        spec, settings = self._spec, self._settings(infers_first)
        most = None if spec.upserts else self._rules.task_records
        pieces = split_ranges(plan.ranges, min_partitions=None, max_records=most)
        dead_held = self._find_dead_held()
        existing = self._located() if spec.upserts else {}
        return [
            SyncTask(
                piece,
                _dead_from(dead_held, piece.tp.partition),
                settings,
                existing.get(piece.tp.partition, ()),
            )
            for piece in pieces
        ]

    def _settings(self, infers_first: bool) -> SyncSettings:
        store = self._store
        schema = store.schema
        return SyncSettings(
            read=read_settings(self._source, READ_COLUMNS),
            spec=self._spec,
            fields=values_of_schema(self._spec, schema),
            rules=write_rules(store, self._rules.target_bytes),
            dead_rules=write_rules(self._dead or store, self._rules.target_bytes),
            only_finds_fields=infers_first,
            batch=self._batches,
        )

    def _located(self) -> Mapping[int, list[LocatedPart]]:
        by_partition: dict[int, list[LocatedPart]] = {}
        for part in self._store.parts():
            assert part.topic_partition is not None, "partitioned by the topic's partitions"
            located = LocatedPart(part, self._store.path_of(part))
            by_partition.setdefault(part.topic_partition, []).append(located)
        return by_partition

    def _discard(self, results: Sequence[SyncTaskResult]) -> None:
        for result in results:
            remove_parts(str(self._store.location), result.added)
            if self._dead is not None:
                remove_parts(str(self._dead.location), result.dead)

    def _find_dead_held(self) -> Mapping[int, HeldRange]:
        if self._dead is None:
            return {}
        self._dead.load()
        return self._dead.state.held

    # The commit.

    def _commit(self, plan: SyncPlan, results: Sequence[SyncTaskResult]) -> None:
        """Commits dead letters first: after a crash between the two commits the dead-letter table
        is ahead, and its held offsets tell the next run which letters it has."""
        added = [part for result in results for part in result.added]
        removed = [part for result in results for part in result.removed]
        dead = [part for result in results for part in result.dead]
        if dead:
            self._commit_dead(dead, plan.held, results)
        try:
            self._store.commit(TableChange(added, removed, plan.held))
        except CommitConflict:
            remove_parts(str(self._store.location), added)
            raise

    def _commit_dead(
        self,
        parts: Sequence[Part],
        held: Mapping[int, HeldRange],
        results: Sequence[SyncTaskResult],
    ) -> None:
        assert self._dead is not None, "values can be bad"
        before = self._dead.state.held
        after = {
            number: _later(before.get(number), held_range) for number, held_range in held.items()
        }
        try:
            self._dead.commit(TableChange(parts, [], after))
        except CommitConflict:
            self._discard(results)
            raise


def _dead_from(held: Mapping[int, HeldRange], number: int) -> int:
    return held[number].end if number in held else 0


def _later(one: HeldRange | None, other: HeldRange) -> HeldRange:
    return other if one is None else HeldRange(min(one.start, other.start), max(one.end, other.end))


def _progress(
    topic: str, plan: SyncPlan, results: Sequence[SyncTaskResult], batch_ms: int
) -> SyncProgress:
    return SyncProgress(
        topic=topic,
        rows=sum(result.rows for result in results),
        bad=sum(result.bad for result in results),
        files=sum(len(result.added) for result in results),
        lag=plan.lag,
        batch_ms=batch_ms,
    )
