"""The options of `penstock table sync`, checked before the cluster is contacted.

An option that is absent differs from one that is false: an existing table keeps its own setting.
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
    """`options` by the field names of TableSpec; None means absent."""

    def __init__(
        self, topics: list[str], table_format: str | None, options: Mapping[str, object]
    ) -> None:
        from penstock.spark.tables.spec import parse_changes

        self._topics = topics
        self._options = {name: value for name, value in options.items() if value is not None}
        self._changes = parse_changes(self._options)
        self._check(table_format)
        self._explicit = {
            topic: self._spec(topic, table_format) for topic in topics if table_format is not None
        }

    def open_tables(self, folder: "TableFolder", client: "BlockingClient") -> "list[TopicTables]":
        from penstock.spark.tables.opening import open_tables

        return [
            open_tables(folder, spec, topic, client, self._changes)
            for topic, spec in self._specs(client).items()
        ]

    def _check(self, table_format: str | None) -> None:
        if self._options.keys() - self._changes.keys() and table_format is None:
            fail("options that describe a new table need --format", 2)
        if table_format is not None and not self._topics:
            fail("--format needs a TOPIC", 2)

    def _specs(self, client: "BlockingClient") -> "Mapping[str, TableSpec | None]":
        """Specs by topic; None if the existing table has its own."""
        from penstock.spark.tables.topic_tables import find_wanted

        if self._explicit:
            return self._explicit
        wanted = find_wanted(client, self._topics or None)
        if not self._topics and not wanted:
            fail(
                "no topic has the config penstock.table.format: name a topic, or set it with "
                "penstock topic alter orders --config penstock.table.format=delta",
                2,
            )
        return {topic: wanted.get(topic) for topic in self._topics or wanted}

    def _spec(self, topic: str, table_format: str | None) -> "TableSpec":
        from penstock.spark.tables.spec import parse_spec

        return parse_spec({**self._options, "topic": topic, "format": table_format})


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
        fail(f"--dir {folder}: must be a local or mounted folder", 2)
    return TableFolder(folder=folder)
