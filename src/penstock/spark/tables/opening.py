"""Tables of a folder, opened or made for a topic, after the cluster was asked about it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

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
    """Of one topic."""

    spec: TableSpec  # as it is for this run
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
    place: TableFolder,
    spec: TableSpec | None,
    topic: str,
    client: BlockingClient,
    changes: Mapping[str, Any] | None = None,
) -> TopicTables:
    """`spec` None: the table is there, and is taken as it is. `changes`: for this run."""
    location = place.of(topic)
    store = find_store(location)
    client.metadata([topic]).topics[topic].check()
    topic_id = find_topic_id(client, topic)
    if store is None:
        if spec is None:
            raise TableError(
                f"there is no table of topic {topic} in {place.folder}: say what it is to be, at "
                "least with --format"
            )
        store = _create(location, _with_topic_id(spec, topic_id))
    else:
        _check_same(store, spec, topic_id)
    now = replace(store.spec, **changes_of(spec), **(changes or {}))
    return TopicTables(now, store, _open_dead_letters(location, now))


def check_same_topic(store: TableStore, topic_id: str | None) -> None:
    """A topic that was deleted and made anew does not go on in the old table."""
    began = store.spec.topic_id
    if None not in (began, topic_id) and began != topic_id:
        raise TableError(
            f"topic {store.spec.topic} was deleted and made anew since {store.location} began (its "
            f"id was {began} and is {topic_id}): keep the old table under another name"
        )


def find_topic_id(client: BlockingClient, topic: str) -> str | None:
    """None: the cluster gives topics no ids, or has not this one."""
    found = client.metadata([topic]).topics.get(topic)
    return None if found is None or found.topic_id is None else str(found.topic_id)


def sync_options(bootstrap: str, topic: str) -> SourceOptions:
    """How a sync reads: committed records, none of them lost without a word."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "penstock-table",
    }
    return parse_source_options(options, ReadMode.BATCH)


def _create(location: Path, spec: TableSpec) -> TableStore:
    check_spec(spec)
    return create_store(location, spec, table_schema(spec, value_fields(spec)))


def _open_dead_letters(location: Path, spec: TableSpec) -> TableStore | None:
    if not spec.can_be_bad or spec.bad_values is DeadLetterPolicy.FAIL:
        return None
    place = dead_letters_of(location)
    found = find_store(place)
    if found is not None:
        return found
    raw = TableSpec(topic=spec.topic, format=spec.format, topic_id=spec.topic_id)
    return create_store(place, raw, dead_letter_schema())


def _check_same(store: TableStore, spec: TableSpec | None, topic_id: str | None) -> None:
    check_same_topic(store, topic_id)
    kept = store.spec
    if spec is not None and (found := differences(kept, _with_topic_id(spec, kept.topic_id))):
        raise TableError(
            f"the table in {store.location} cannot be changed to that: {'; '.join(found)}. Leave "
            "the options out to go on with it, or begin another in a new folder"
        )


def _with_topic_id(spec: TableSpec, topic_id: str | None) -> TableSpec:
    return replace(spec, topic_id=topic_id)
