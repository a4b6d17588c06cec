"""A table that follows its topic: plan, have tasks write files, commit, again.

The table is the only memory. Invariant: after any crash, at any line, the next batch begins where
the last commit ended, so that every record is in the table once, as a row or as a dead letter.
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

_MOST_LOOKS = 8  # at a batch whose values have ever more fields
_MOST_CONFLICTS = 3  # in a row
_NO_TYPE = pa.null()


class SyncProgress(NamedTuple):
    """One batch that is in the table."""

    topic: str
    rows: int
    bad: int  # of them, dead letters
    files: int
    lag: int
    batch_ms: int


class TableSync:
    """`dead_letters` is the table beside this one, where values can be bad."""

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
        self._batches = 0  # tried so far

    def run_batch(self) -> SyncProgress | None:
        """What has come since the last one is in the table. None: nothing has."""
        for _ in range(_MOST_CONFLICTS):
            try:
                return self._try_batch()
            except CommitConflict as conflict:
                self._note(f"{conflict}; planning again")
        raise TableError(
            f"somebody else changes {self._store.location} all the time: does another sync run?"
        )

    def _try_batch(self) -> SyncProgress | None:
        began_at = time.monotonic()
        self._batches += 1
        self._store.load()
        plan = self._plan()
        if not plan.ranges:
            return None
        halt_at(SyncFailPoint.PLANNED, self._batches)
        outcomes = self._write(plan)
        halt_at(SyncFailPoint.WRITTEN, self._batches)
        self._commit(plan, outcomes)
        halt_at(SyncFailPoint.COMMITTED, self._batches)
        batch_ms = round((time.monotonic() - began_at) * 1000)
        return _progress(self._spec.topic, plan, outcomes, batch_ms)

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
                    f"{loss}, and {self._store.location} lacks it. --allow-loss goes on with what "
                    "is there; a new folder begins anew"
                )
            self._note(f"{loss}; going on, as it is allowed")
        return plan

    # What tasks write.

    def _write(self, plan: SyncPlan) -> list[SyncTaskResult]:
        """Again with more columns where values have fields that the table lacks."""
        spec = self._spec
        looks_first = spec.infers and not values_of_schema(spec, self._store.schema)
        for _ in range(_MOST_LOOKS):
            outcomes = self._run_tasks(run_sync_task, self._tasks(plan, looks_first))
            found = join_fields(each.found for each in outcomes)
            if not self._grow(found) and not looks_first:
                return outcomes
            self._discard(outcomes)
            looks_first = False
        raise TableError(
            f"values of topic {spec.topic} have new fields at every look; see --schema"
        )

    def _grow(self, found: Sequence[pa.Field]) -> bool:
        spec = self._spec
        known = values_of_schema(spec, self._store.schema)
        grown = grow(known, found)
        if not grown.added:
            return False
        before = {each.name: each.type for each in known}
        held = self._store.state.held
        self._store.add_columns(
            [each for each in grown.fields if before.get(each.name, _NO_TYPE) != each.type]
        )
        if self._store.state.held != held:  # columns alone are no conflict, but this plan is old
            raise CommitConflict(f"{self._store.location} was filled by somebody else")
        self._note(f"{spec.topic}: new columns {', '.join(grown.added)}")
        return True

    def _tasks(self, plan: SyncPlan, looks_first: bool) -> list[SyncTask]:
        spec, settings = self._spec, self._settings(looks_first)
        most = None if spec.upserts else self._rules.task_records
        pieces = split_ranges(plan.ranges, min_partitions=None, max_records=most)
        dead_held = self._find_dead_held()
        existing = self._located() if spec.upserts else {}
        return [
            SyncTask(
                each,
                _dead_from(dead_held, each.tp.partition),
                settings,
                existing.get(each.tp.partition, ()),
            )
            for each in pieces
        ]

    def _settings(self, looks_first: bool) -> SyncSettings:
        store = self._store
        schema = store.schema
        return SyncSettings(
            read=read_settings(self._source, READ_COLUMNS),
            spec=self._spec,
            fields=values_of_schema(self._spec, schema),
            rules=write_rules(store, self._rules.target_bytes),
            dead_rules=write_rules(self._dead or store, self._rules.target_bytes),
            only_finds_fields=looks_first,
            batch=self._batches,
        )

    def _located(self) -> Mapping[int, list[LocatedPart]]:
        found: dict[int, list[LocatedPart]] = {}
        for part in self._store.parts():
            assert part.topic_partition is not None, "divided by the topic's partitions"
            place = LocatedPart(part, self._store.path_of(part))
            found.setdefault(part.topic_partition, []).append(place)
        return found

    def _discard(self, outcomes: Sequence[SyncTaskResult]) -> None:
        for each in outcomes:
            remove_parts(str(self._store.location), each.added)
            if self._dead is not None:
                remove_parts(str(self._dead.location), each.dead)

    def _find_dead_held(self) -> Mapping[int, HeldRange]:
        if self._dead is None:
            return {}
        self._dead.load()
        return self._dead.state.held

    # The commit.

    def _commit(self, plan: SyncPlan, outcomes: Sequence[SyncTaskResult]) -> None:
        """Dead letters first: a crash between the two leaves a dead-letter table that is ahead, and
        its own end tells the next run which of them it has."""
        added = [part for each in outcomes for part in each.added]
        removed = [part for each in outcomes for part in each.removed]
        dead = [part for each in outcomes for part in each.dead]
        if dead:
            self._commit_dead(dead, plan.held, outcomes)
        try:
            self._store.commit(TableChange(added, removed, plan.held))
        except CommitConflict:
            remove_parts(str(self._store.location), added)
            raise

    def _commit_dead(
        self,
        parts: Sequence[Part],
        held: Mapping[int, HeldRange],
        outcomes: Sequence[SyncTaskResult],
    ) -> None:
        assert self._dead is not None, "only where values can be bad"
        before = self._dead.state.held
        after = {number: _later(before.get(number), each) for number, each in held.items()}
        try:
            self._dead.commit(TableChange(parts, [], after))
        except CommitConflict:
            self._discard(outcomes)
            raise


def _dead_from(held: Mapping[int, HeldRange], number: int) -> int:
    return held[number].end if number in held else 0


def _later(one: HeldRange | None, other: HeldRange) -> HeldRange:
    return other if one is None else HeldRange(min(one.start, other.start), max(one.end, other.end))


def _progress(
    topic: str, plan: SyncPlan, outcomes: Sequence[SyncTaskResult], batch_ms: int
) -> SyncProgress:
    return SyncProgress(
        topic=topic,
        rows=sum(each.rows for each in outcomes),
        bad=sum(each.bad for each in outcomes),
        files=sum(len(each.added) for each in outcomes),
        lag=plan.lag,
        batch_ms=batch_ms,
    )
