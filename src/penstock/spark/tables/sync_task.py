"""The task of a sync: reads a range of one topic partition and writes it to files.

Runs in Spark's Python workers and keeps no state. Invariant: every record of the range is in a file
of the result, as a row or as a dead letter, unless the result has fields without a column.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.sink.exactly_once.fail_points import halt_at
from penstock.spark.source.plan import OffsetRange
from penstock.spark.source.read_task import ReadSettings, read_range
from penstock.spark.tables.errors import TableError
from penstock.spark.tables.evolution import grow, join_fields
from penstock.spark.tables.part_reader import LocatedPart
from penstock.spark.tables.part_writer import PartWriter, WriteRules
from penstock.spark.tables.parts import Part
from penstock.spark.tables.spec import DeadLetterPolicy, TableSpec
from penstock.spark.tables.sync_fail_points import SyncFailPoint
from penstock.spark.tables.table_schema import ERROR, OFFSET, VALUE
from penstock.spark.tables.upsert import latest_rows, rewrite_without
from penstock.spark.tables.values import Shaped, Shaper


class SyncSettings(NamedTuple):
    """Shared by all tasks of a batch."""

    read: ReadSettings
    spec: TableSpec
    fields: Sequence[pa.Field]  # current columns of values
    rules: WriteRules
    dead_rules: WriteRules
    only_finds_fields: bool = False  # first pass over values whose columns are inferred
    batch: int = 0  # number within this run


class SyncTask(NamedTuple):
    wanted: OffsetRange
    dead_from: int  # earlier dead letters are already in their table
    settings: SyncSettings
    existing: Sequence[LocatedPart] = ()  # files of this partition, for upserts


class SyncTaskResult(NamedTuple):
    added: list[Part]
    removed: list[Part]
    dead: list[Part]
    rows: int  # read
    bad: int
    seen_fields: list[pa.Field]  # all fields of values if columns are missing, else empty


def run_sync_task(task: SyncTask) -> SyncTaskResult:
    settings = task.settings
    number = task.wanted.tp.partition
    good = PartWriter(settings.rules, number)
    dead = PartWriter(settings.dead_rules, number)
    work = _Work(task, good, dead)
    try:
        for batch in read_range(task.wanted, settings.read):
            work.add(batch)
        return work.finish()
    except BaseException:
        good.abort()
        dead.abort()
        raise


class _Work:
    def __init__(self, task: SyncTask, good: PartWriter, dead: PartWriter) -> None:
        self._task = task
        self._settings = task.settings
        self._good = good
        self._dead = dead
        self._shaper = Shaper(task.settings.spec, task.settings.fields)
        self._seen_fields: list[list[pa.Field]] = []
        self._waiting: list[pa.Table] = []  # rows of an upsert table
        self._rows = self._bad = 0

    def add(self, batch: pa.RecordBatch) -> None:
        shaped = self._shaper.shape(batch)
        self._rows += batch.num_rows
        self._seen_fields.append(shaped.seen_fields)
        if self._settings.only_finds_fields or self._lacks_columns(shaped.seen_fields):
            return  # the batch is written again with the new columns
        self._add_dead(shaped)
        if self._settings.spec.upserts:
            self._waiting.append(shaped.rows)
        else:
            self._good.add(shaped.rows)
        halt_at(SyncFailPoint.WRITING, self._settings.batch)

    def finish(self) -> SyncTaskResult:
        seen_fields = join_fields(self._seen_fields)
        if self._settings.only_finds_fields or self._lacks_columns(seen_fields):
            self._good.abort()
            self._dead.abort()
            return SyncTaskResult([], [], [], self._rows, 0, seen_fields)
        removed: list[Part] = []
        if self._waiting:
            removed = self._replace_rows()
        return SyncTaskResult(
            self._good.close(), removed, self._dead.close(), self._rows, self._bad, []
        )

    def _lacks_columns(self, seen_fields: Sequence[pa.Field]) -> bool:
        return bool(seen_fields) and bool(grow(self._settings.fields, seen_fields).added)

    def _add_dead(self, shaped: Shaped) -> None:
        if not shaped.dead.num_rows:
            return
        if self._settings.spec.bad_values is DeadLetterPolicy.FAIL:
            raise TableError(_complaint(self._task, shaped.dead))
        is_new = pc.greater_equal(shaped.dead.column(OFFSET), self._task.dead_from)
        self._bad += shaped.dead.num_rows
        self._dead.add(shaped.dead.filter(is_new))

    def _replace_rows(self) -> list[Part]:
        latest = latest_rows(pa.concat_tables(self._waiting))
        removed = rewrite_without(
            latest.keys, self._task.existing, self._settings.rules.schema, self._good
        )
        self._good.add(latest.rows)
        return removed


def _complaint(task: SyncTask, dead: pa.Table) -> str:
    first: dict[str, object] = dead.slice(0, 1).to_pylist()[0]
    value = first[VALUE]
    start = value[:60].decode(errors="replace") if isinstance(value, bytes) else "nothing"
    return (
        f"{task.wanted.tp}, offset {first[OFFSET]}: {first[ERROR]}; the value starts with "
        f"{start!r}. Write such records to the dead-letter table with --bad-values dead-letter"
    )
