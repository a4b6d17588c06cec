"""Opens or creates a topic's tables in a folder, after checking the topic in the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.spark.connect.cluster_security import security_options
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.options import ReadMode, SourceOptions, parse_source_options
from penstock.spark.tables.errors import TableError
from penstock.spark.tables.spec import (
    DeadLetterPolicy,
    TableSpec,
    changes_of,
    check_spec,
    differences,
)
from penstock.spark.tables.store import (
    TableStore,
    create_store,
    dead_letters_of,
    find_store,
)
from penstock.spark.tables.table_schema import dead_letter_schema, table_schema, value_fields


class TopicTables(NamedTuple):
    """A topic's table and its dead-letter table."""

    spec: TableSpec  # for this run
    store: TableStore
    dead_letters: TableStore | None

    def close(self) -> None:
        self.store.close()
        if self.dead_letters is not None:
            self.dead_letters.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """A folder of tables."""

    folder: Path

    def of(self, topic: str) -> Path:
        return self.folder.absolute() / topic


def open_tables(
    folder: TableFolder,
    spec: TableSpec | None,
    topic: str,
    client: BlockingClient,
    changes: Mapping[str, Any] | None = None,
) -> TopicTables:
    """Opens or creates the tables. `spec` None takes an existing table as it is; `changes` are for
    this run only."""
    location = folder.of(topic)
    store = find_store(location)
    client.metadata([topic]).topics[topic].check()
    topic_id = find_topic_id(client, topic)
    if store is None:
        if spec is None:
            raise TableError(
                f"there is no table of topic {topic} in {folder.folder}: describe it, at least "
                "with --format"
            )
        store = _create(location, _with_topic_id(spec, topic_id))
    else:
        _check_same(store, spec, topic_id)
    now = replace(store.spec, **changes_of(spec), **(changes or {}))
    return TopicTables(now, store, _open_dead_letters(location, now))


def check_same_topic(store: TableStore, topic_id: str | None) -> None:
    """Raises if the topic was deleted and recreated since the table was created."""
    stored_id = store.spec.topic_id
    if None not in (stored_id, topic_id) and stored_id != topic_id:
        raise TableError(
            f"topic {store.spec.topic} was deleted and recreated since {store.location} was "
            f"created (its id was {stored_id} and is {topic_id}): rename the old table"
        )


def find_topic_id(client: BlockingClient, topic: str) -> str | None:
    """None if the cluster has no topic ids, or no such topic."""
    metadata = client.metadata([topic]).topics.get(topic)
    return None if metadata is None or metadata.topic_id is None else str(metadata.topic_id)


def sync_options(bootstrap: str, topic: str) -> SourceOptions:
    """The source options of a sync: committed records only, and failing on data loss."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "penstock-table",
        **security_options(bootstrap),
    }
    return parse_source_options(options, ReadMode.BATCH)


def _create(location: Path, spec: TableSpec) -> TableStore:
    check_spec(spec)
    return create_store(location, spec, table_schema(spec, value_fields(spec)))


def _open_dead_letters(location: Path, spec: TableSpec) -> TableStore | None:
    if not spec.can_be_bad or spec.bad_values is DeadLetterPolicy.FAIL:
        return None
    dead_location = dead_letters_of(location)
    store = find_store(dead_location)
    if store is not None:
        return store
    raw = TableSpec(topic=spec.topic, format=spec.format, topic_id=spec.topic_id)
    return create_store(dead_location, raw, dead_letter_schema())


def _check_same(store: TableStore, spec: TableSpec | None, topic_id: str | None) -> None:
    check_same_topic(store, topic_id)
    kept = store.spec
    if spec is None:
        return
    if changed := differences(kept, _with_topic_id(spec, kept.topic_id)):
        raise TableError(
            f"the table in {store.location} cannot be changed to that: {'; '.join(changed)}. Omit "
            "the options to continue with it, or create another one in a new folder"
        )


def _with_topic_id(spec: TableSpec, topic_id: str | None) -> TableSpec:
    return replace(spec, topic_id=topic_id)
