"""How a table does: what it holds, in how many files, and how far it is behind its topic."""

from pathlib import Path
from typing import NamedTuple

from penstock.client.errors import ClientError
from penstock.spark.connections import BlockingClient
from penstock.spark.discovery import Discovery
from penstock.spark.tables.opening import sync_options
from penstock.spark.tables.parts import Held
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
    held: Held
    lag: int | None  # records that the topic has and the table has not; None: not known


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
    """Topics that have a table in this folder."""
    if not folder.is_dir():
        return []
    return sorted(
        each.name
        for each in folder.iterdir()
        if not each.name.endswith(DEAD_LETTERS) and find_format(each) is not None
    )


def table_status(location: Path, client: BlockingClient | None) -> TableStatus:
    """`client` None: the cluster is not asked, and the lag is not known."""
    store = get_store(location)
    try:
        ends = _log_ends(store, client)
        held = store.state.held
        partitions = [
            PartitionStatus(number, each, _lag(each, ends.get(number)))
            for number, each in sorted(held.items())
        ]
        lags = [each.lag for each in partitions if each.lag is not None]
        new = sum(end for number, end in ends.items() if number not in held)
        parts = store.parts()
        return TableStatus(
            topic=store.spec.topic,
            format=store.spec.format,
            location=str(location),
            rows=sum(each.rows for each in parts),
            files=len(parts),
            size_bytes=sum(each.size_bytes for each in parts),
            dead_letters=_count_dead(location),
            lag=sum(lags) + new if ends else None,
            partitions=partitions,
        )
    finally:
        store.close()


def _lag(held: Held, end: int | None) -> int | None:
    return None if end is None else max(0, end - held.end)


def _log_ends(store: TableStore, client: BlockingClient | None) -> dict[int, int]:
    """Nothing where the cluster cannot be asked, or has the topic not any more."""
    if client is None:
        return {}
    options = sync_options(client.settings.bootstrap, store.spec.topic)
    discovery = Discovery(client, options)
    try:
        ends = discovery.latest(discovery.find_partitions(is_lenient=True))
    except ClientError:
        return {}
    return {each.partition: end for each, end in ends.items()}


def _count_dead(location: Path) -> int:
    store = find_store(dead_letters_of(location))
    if store is None:
        return 0
    try:
        return sum(each.rows for each in store.parts())
    finally:
        store.close()
