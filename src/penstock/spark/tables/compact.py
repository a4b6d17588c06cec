"""Upkeep of a table on request: small files made into larger ones, unneeded ones deleted."""

import time
from typing import NamedTuple

from penstock.spark.tables.store import TableStore, dead_letters_of, find_store
from penstock.spark.tables.sync import RunTasks, SyncRules, compact_table

_HOUR_MS = 3_600_000


class Upkeep(NamedTuple):
    compacted: int
    forgotten: int


def compact_and_forget(
    store: TableStore, run_tasks: RunTasks, rules: SyncRules, *, keep_hours: int
) -> Upkeep:
    """Of a table and of its dead letters."""
    dead = find_store(dead_letters_of(store.location))
    compacted = forgotten = 0
    for each in (store, dead):
        if each is not None:
            compacted += compact_table(each, run_tasks, rules, least_files=2)
            now_ms = time.time_ns() // 1_000_000
            forgotten += each.forget_older_than(keep_hours * _HOUR_MS, now_ms)
    if dead is not None:
        dead.close()
    return Upkeep(compacted, forgotten)
