"""Several tables kept up with their topics, by turns, until told to stop or all is there."""

import threading
from collections.abc import Callable, Iterable, Sequence

from penstock.model.values import dataclass
from penstock.spark.connections import BlockingClient
from penstock.spark.discovery import Discovery
from penstock.spark.tables.errors import CommitConflict
from penstock.spark.tables.opening import Tables, sync_options
from penstock.spark.tables.sync import Progress, RunTasks, SyncRules, TableSync


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """How tables are kept this time."""

    once: bool  # end when the tables hold what their topics have
    every_s: float  # how long to wait when nothing has come
    stop: threading.Event
    rules: SyncRules
    show: Callable[[Progress], None]
    note: Callable[[str], None]


def follow(
    tables: Iterable[Tables], client: BlockingClient, run_tasks: RunTasks, how: Follow
) -> None:
    syncs = [make_sync(each, client, run_tasks, how.rules, how.note) for each in tables]
    behind = syncs
    while behind and not how.stop.is_set():
        lags = [_run_batch(each, how) for each in behind if not how.stop.is_set()]
        if how.once:
            behind = [each for each, lag in zip(behind, lags, strict=False) if lag]
        elif not any(lags):
            how.stop.wait(how.every_s)


def _run_batch(sync: TableSync, how: Follow) -> int:
    """How many records were left when it was planned: those that come meanwhile do not count."""
    progress = sync.run_batch()
    if progress is None:
        return 0
    how.show(progress)
    try:
        files = sync.compact_sometimes()
    except CommitConflict as conflict:
        how.note(f"{conflict}; its small files stay for now")
        return progress.lag
    if files:
        how.note(f"{progress.topic}: {files} small files made into larger ones")
    return progress.lag


def make_sync(
    tables: Tables,
    client: BlockingClient,
    run_tasks: RunTasks,
    rules: SyncRules,
    note: Callable[[str], None],
) -> TableSync:
    source = sync_options(client.settings.bootstrap, tables.store.spec.topic)
    return TableSync(
        spec=tables.spec,
        store=tables.store,
        dead_letters=tables.dead_letters,
        source=source,
        discovery=Discovery(client, source),
        run_tasks=run_tasks,
        rules=rules,
        note=note,
    )


def close_all(tables: Sequence[Tables]) -> None:
    for each in tables:
        each.close()
