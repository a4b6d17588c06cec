"""Maintains a table: merges small files into larger ones, and deletes files that are not needed."""

from typing import NamedTuple

from penstock.spark.tables.compaction import CompactTask, choose_groups, run_compact_task
from penstock.spark.tables.errors import CommitConflict
from penstock.spark.tables.part_reader import LocatedPart
from penstock.spark.tables.part_writer import remove_parts
from penstock.spark.tables.parts import TableChange
from penstock.spark.tables.rules import RunTasks, SyncRules, write_rules
from penstock.spark.tables.store import TableStore

DAY_MS = 86_400_000
_COMPACT_EVERY = 16  # commits
_WORTH_COMPACTING = 16  # files of one partition
_VACUUM_EVERY = 256  # commits
_KEPT_MS = DAY_MS  # running readers may still need the files


class MaintenanceResult(NamedTuple):
    compacted: int = 0  # files merged into larger ones
    deleted: int = 0  # files deleted


class TableMaintenance:
    """Maintains one table from time to time while it is synced."""

    def __init__(self, store: TableStore, run_tasks: RunTasks, rules: SyncRules) -> None:
        self._store = store
        self._run_tasks = run_tasks
        self._rules = rules
        self._commits = 0

    @property
    def table(self) -> str:
        return self._store.location.name

    def after_commit(self, now_ms: int) -> MaintenanceResult:
        self._commits += 1
        if not self._rules.compacts:
            return MaintenanceResult()
        compacted = deleted = 0
        if self._commits % _COMPACT_EVERY == 0:
            compacted = compact_table(
                self._store, self._run_tasks, self._rules, least_files=_WORTH_COMPACTING
            )
        if self._commits % _VACUUM_EVERY == 0:
            deleted = self._store.vacuum(_KEPT_MS, now_ms)
        return MaintenanceResult(compacted, deleted)


def maintain_table(
    store: TableStore, run_tasks: RunTasks, rules: SyncRules, *, kept_ms: int, now_ms: int
) -> MaintenanceResult:
    """Compacts and vacuums the table now."""
    compacted = compact_table(store, run_tasks, rules, least_files=2)
    return MaintenanceResult(compacted, store.vacuum(kept_ms, now_ms))


def compact_table(
    store: TableStore, run_tasks: RunTasks, rules: SyncRules, *, least_files: int
) -> int:
    """Returns how many small files were merged into larger ones."""
    store.load()
    target = rules.target_bytes
    groups = choose_groups(store.parts(), target_bytes=target, least_files=least_files)
    if not groups:
        return 0
    files = [tuple(LocatedPart(part, store.path_of(part)) for part in group) for group in groups]
    tasks = [CompactTask(group, write_rules(store, target)) for group in files]
    done = run_tasks(run_compact_task, tasks)
    added = [part for result in done for part in result.added]
    removed = [part for result in done for part in result.removed]
    try:
        store.commit(TableChange(added, removed, store.state.held, is_new_data=False))
    except CommitConflict:
        remove_parts(str(store.location), added)
        raise
    return len(removed)
