"""Small files of a table made into larger ones, and files that nobody needs any more deleted."""

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
_WORTH_COMPACTING = 16  # files of one place
_FORGET_EVERY = 256  # commits
_KEPT_MS = DAY_MS  # a reader may be busy with them


class MaintenanceResult(NamedTuple):
    compacted: int = 0  # files that went into larger ones
    forgotten: int = 0  # files deleted


class TableMaintenance:
    """Of one table while it is synced: from time to time."""

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
        compacted = forgotten = 0
        if self._commits % _COMPACT_EVERY == 0:
            compacted = compact_table(
                self._store, self._run_tasks, self._rules, least_files=_WORTH_COMPACTING
            )
        if self._commits % _FORGET_EVERY == 0:
            forgotten = self._store.forget_older_than(_KEPT_MS, now_ms)
        return MaintenanceResult(compacted, forgotten)


def maintain_table(
    store: TableStore, run_tasks: RunTasks, rules: SyncRules, *, kept_ms: int, now_ms: int
) -> MaintenanceResult:
    """All of it, now."""
    compacted = compact_table(store, run_tasks, rules, least_files=2)
    return MaintenanceResult(compacted, store.forget_older_than(kept_ms, now_ms))


def compact_table(
    store: TableStore, run_tasks: RunTasks, rules: SyncRules, *, least_files: int
) -> int:
    """How many small files became larger ones."""
    store.load()
    target = rules.target_bytes
    groups = choose_groups(store.parts(), target_bytes=target, least_files=least_files)
    if not groups:
        return 0
    files = [tuple(LocatedPart(part, store.path_of(part)) for part in group) for group in groups]
    tasks = [CompactTask(group, write_rules(store, target)) for group in files]
    done = run_tasks(run_compact_task, tasks)
    added = [part for each in done for part in each.added]
    removed = [part for each in done for part in each.removed]
    try:
        store.commit(TableChange(added, removed, store.state.held, is_new_data=False))
    except CommitConflict:
        remove_parts(str(store.location), added)
        raise
    return len(removed)
