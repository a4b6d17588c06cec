"""What the command line says of tables, checked before anything is asked of a cluster.

Not said and said to be no are two things: a table that is there keeps what is not said.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.connect import fail

if TYPE_CHECKING:
    from penstock.spark.connect.connections import BlockingClient
    from penstock.spark.tables.opening import TableFolder, TopicTables
    from penstock.spark.tables.spec import TableSpec


class TableOptions:
    """`given`: by the names of a TableSpec; None is what was not said."""

    def __init__(
        self, topics: list[str], table_format: str | None, given: Mapping[str, object]
    ) -> None:
        from penstock.spark.tables.spec import parse_changes

        self._topics = topics
        self._given = {name: value for name, value in given.items() if value is not None}
        self._changes = parse_changes(self._given)
        self._check(table_format)
        self._said = {
            topic: self._spec(topic, table_format) for topic in topics if table_format is not None
        }

    def open_tables(self, place: "TableFolder", client: "BlockingClient") -> "list[TopicTables]":
        from penstock.spark.tables.opening import open_tables

        return [
            open_tables(place, spec, topic, client, self._changes)
            for topic, spec in self._specs(client).items()
        ]

    def _check(self, table_format: str | None) -> None:
        if self._given.keys() - self._changes.keys() and table_format is None:
            fail("say with --format what table it is to be, or leave its other options out", 2)
        if table_format is not None and not self._topics:
            fail("say which TOPIC is to become a table", 2)

    def _specs(self, client: "BlockingClient") -> "Mapping[str, TableSpec | None]":
        """By topic; None: the table is there, and says itself what it is."""
        from penstock.spark.tables.topic_tables import find_wanted

        if self._said:
            return self._said
        wanted = find_wanted(client, self._topics or None)
        if not self._topics and not wanted:
            fail(
                "no topic has the setting penstock.table.format: name one, or set it, as in "
                "penstock topic alter orders --config penstock.table.format=delta",
                2,
            )
        return {topic: wanted.get(topic) for topic in self._topics or wanted}

    def _spec(self, topic: str, table_format: str | None) -> "TableSpec":
        from penstock.spark.tables.spec import parse_spec

        return parse_spec({**self._given, "topic": topic, "format": table_format})


def read_avro(file: Path | None) -> Any:
    if file is None:
        return None
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        fail(f"--schema-file {file}: {error}", 2)


def get_table_folder(folder: Path) -> "TableFolder":
    from penstock.spark.tables.opening import TableFolder

    if "://" in str(folder) or ":/" in str(folder)[:8]:
        fail(f"--dir {folder}: tables are kept in folders of this machine, or mounted on it", 2)
    return TableFolder(folder=folder)
