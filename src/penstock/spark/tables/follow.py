"""Syncs several tables with their topics in turn, until stopped or up to date."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.discovery import Discovery
from penstock.spark.tables.errors import CommitConflict
from penstock.spark.tables.maintenance import TableMaintenance
from penstock.spark.tables.opening import TopicTables, find_topic_id, sync_options
from penstock.spark.tables.rules import RunTasks, SyncRules
from penstock.spark.tables.sync import SyncProgress, TableSync


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """The options of one run."""

    once: bool  # end when the tables hold all records of their topics
    every_s: float  # how long to wait if there are no new records
    stop: threading.Event
    rules: SyncRules
    show: Callable[[SyncProgress], None]
    note: Callable[[str], None]


def follow(
    tables: Iterable[TopicTables],
    client: BlockingClient,
    run_tasks: RunTasks,
    options: FollowOptions,
) -> None:
    behind = [_FollowedTable(topic_tables, client, run_tasks, options) for topic_tables in tables]
    while behind and not options.stop.is_set():
        lags = [table.run_batch() for table in behind if not options.stop.is_set()]
        if options.once:
            behind = [table for table, lag in zip(behind, lags, strict=False) if lag]
        elif not any(lags):
            options.stop.wait(options.every_s)


class _FollowedTable:
    """A table's sync and its maintenance."""

    def __init__(
        self,
        tables: TopicTables,
        client: BlockingClient,
        run_tasks: RunTasks,
        options: FollowOptions,
    ) -> None:
        self._sync = make_sync(tables, client, run_tasks, options.rules, options.note)
        stores = [store for store in (tables.store, tables.dead_letters) if store is not None]
        self._maintenance = [TableMaintenance(store, run_tasks, options.rules) for store in stores]
        self._options = options

    def run_batch(self) -> int:
        """Returns the lag as of planning: records that arrive meanwhile do not count."""
        progress = self._sync.run_batch()
        if progress is None:
            return 0
        self._options.show(progress)
        for maintenance in self._maintenance:
            self._maintain(maintenance)
        return progress.lag

    def _maintain(self, maintenance: TableMaintenance) -> None:
        try:
            done = maintenance.after_commit(time.time_ns() // 1_000_000)
        except CommitConflict as conflict:
            self._options.note(f"{conflict}; its small files are not merged now")
            return
        if done.compacted:
            self._options.note(f"{maintenance.table}: {done.compacted} small files merged")


def make_sync(
    tables: TopicTables,
    client: BlockingClient,
    run_tasks: RunTasks,
    rules: SyncRules,
    note: Callable[[str], None],
) -> TableSync:
    topic = tables.store.spec.topic
    source = sync_options(client.settings.bootstrap, topic)
    return TableSync(
        spec=tables.spec,
        store=tables.store,
        dead_letters=tables.dead_letters,
        source=source,
        discovery=Discovery(client, source),
        find_topic_id=lambda: find_topic_id(client, topic),
        run_tasks=run_tasks,
        rules=rules,
        note=note,
    )


def close_all(tables: Sequence[TopicTables]) -> None:
    for topic_tables in tables:
        topic_tables.close()
