"""A table's status: held offsets, rows, files, and its lag behind the topic."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.client.errors import ClientError
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.discovery import Discovery
from penstock.spark.tables.opening import sync_options
from penstock.spark.tables.parts import HeldRange
from penstock.spark.tables.store import (
    DEAD_LETTERS,
    TableStore,
    dead_letters_of,
    find_format,
    find_store,
    get_store,
)


class PartitionStatus(NamedTuple):
    partition: int
    held: HeldRange
    lag: int | None  # records of the topic that are not in the table yet; None: not known


class TableStatus(NamedTuple):
    topic: str
    format: str
    location: str
    rows: int
    files: int
    size_bytes: int
    dead_letters: int
    lag: int | None
    partitions: list[PartitionStatus]


def find_tables(folder: Path) -> list[str]:
    """The topics that have a table in this folder."""
    if not folder.is_dir():
        return []
    return sorted(
        path.name
        for path in folder.iterdir()
        if not path.name.endswith(DEAD_LETTERS) and find_format(path) is not None
    )


def table_status(location: Path, client: BlockingClient) -> TableStatus:
    store = get_store(location)
    try:
        partitions = _partitions(store.state.held, _find_logs(store, client))
        lags = [partition.lag for partition in partitions if partition.lag is not None]
        parts = store.parts()
        return TableStatus(
            topic=store.spec.topic,
            format=store.spec.format,
            location=str(location),
            rows=sum(part.rows for part in parts),
            files=len(parts),
            size_bytes=sum(part.size_bytes for part in parts),
            dead_letters=_count_dead(location),
            lag=sum(lags) if lags else None,
            partitions=partitions,
        )
    finally:
        store.close()


class _Log(NamedTuple):
    """Start and end offset of a partition's log."""

    start: int
    end: int


def _partitions(held: Mapping[int, HeldRange], logs: Mapping[int, _Log]) -> list[PartitionStatus]:
    """All partitions of table and topic; an empty range is held of a new partition."""
    new = {number: HeldRange(log.start, log.start) for number, log in logs.items()}
    return [
        PartitionStatus(number, held_range, _lag(held_range, logs.get(number)))
        for number, held_range in sorted({**new, **held}.items())
    ]


def _lag(held: HeldRange, log: _Log | None) -> int | None:
    return None if log is None else max(0, log.end - held.end)


def _find_logs(store: TableStore, client: BlockingClient) -> dict[int, _Log]:
    """The topic's partitions; empty if the topic does not exist any more."""
    options = sync_options(client.settings.bootstrap, store.spec.topic)
    discovery = Discovery(client, options)
    try:
        partitions = discovery.find_partitions(is_lenient=True)
        starts, ends = discovery.earliest(partitions), discovery.latest(partitions)
    except ClientError:
        return {}
    return {tp.partition: _Log(starts[tp], ends[tp]) for tp in partitions}


def _count_dead(location: Path) -> int:
    store = find_store(dead_letters_of(location))
    if store is None:
        return 0
    try:
        return sum(part.rows for part in store.parts())
    finally:
        store.close()
