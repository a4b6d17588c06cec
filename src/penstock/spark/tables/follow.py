"""Several tables kept up with their topics, by turns, until told to stop or all is there."""

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
    """How tables are kept this time."""

    once: bool  # end when the tables hold what their topics have
    every_s: float  # how long to wait when nothing has come
    stop: threading.Event
    rules: SyncRules
    show: Callable[[SyncProgress], None]
    note: Callable[[str], None]


def follow(
    tables: Iterable[TopicTables], client: BlockingClient, run_tasks: RunTasks, how: FollowOptions
) -> None:
    behind = [_Kept(each, client, run_tasks, how) for each in tables]
    while behind and not how.stop.is_set():
        lags = [each.run_batch() for each in behind if not how.stop.is_set()]
        if how.once:
            behind = [each for each, lag in zip(behind, lags, strict=False) if lag]
        elif not any(lags):
            how.stop.wait(how.every_s)


class _Kept:
    """A table and its upkeep."""

    def __init__(
        self, tables: TopicTables, client: BlockingClient, run_tasks: RunTasks, how: FollowOptions
    ) -> None:
        self._sync = make_sync(tables, client, run_tasks, how.rules, how.note)
        stores = [each for each in (tables.store, tables.dead_letters) if each is not None]
        self._upkeep = [TableMaintenance(each, run_tasks, how.rules) for each in stores]
        self._how = how

    def run_batch(self) -> int:
        """How many records were left when it was planned: what came meanwhile does not count."""
        progress = self._sync.run_batch()
        if progress is None:
            return 0
        self._how.show(progress)
        for each in self._upkeep:
            self._tend(each)
        return progress.lag

    def _tend(self, upkeep: TableMaintenance) -> None:
        try:
            done = upkeep.after_commit(time.time_ns() // 1_000_000)
        except CommitConflict as conflict:
            self._how.note(f"{conflict}; its small files stay for now")
            return
        if done.compacted:
            self._how.note(f"{upkeep.table}: {done.compacted} small files made into larger ones")


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
    for each in tables:
        each.close()
