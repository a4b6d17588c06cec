"""Reads from the topics' configs which topics have a table, and its specification."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.admin_values import ConfigResource
from penstock.client.metadata import TopicMetadata
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.spec import REGISTRY_BYTES, TableSpec, ValueKind, parse_spec
from penstock.spark.tables.table_schema import value_fields

_PREFIX = "penstock.table."
_NO_TABLE = "none"
# Settings that earlier brokers do not have.
_LATER = {"penstock.table.schema": "", "penstock.table.registry.prefix": "false"}


def find_wanted(client: BlockingClient, topics: Iterable[str] | None) -> dict[str, TableSpec]:
    """The specs of those topics (None: all) whose config asks for a table."""
    names = sorted(_all_topics(client) if topics is None else topics)
    resources = [ConfigResource.topic(name) for name in names]
    if not resources:
        return {}
    answers = client.run(lambda cluster: cluster.admin.describe_configs(resources))
    specs = {
        resource.name: read_settings(
            resource.name,
            {entry.name: entry.value or "" for entry in entries if entry.name.startswith(_PREFIX)},
        )
        for resource, entries in answers.items()
    }
    return {name: spec for name, spec in specs.items() if spec is not None}


def read_settings(topic: str, settings: Mapping[str, str]) -> TableSpec | None:
    """None if the topic has no table. Other Kafka clusters have none of these settings."""
    if not settings or settings["penstock.table.format"] == _NO_TABLE:
        return None
    try:
        spec = parse_spec({"topic": topic, **_spec_fields({**_LATER, **settings})})
        value_fields(spec)  # the broker does not validate the schema
    except BadTableOption as error:
        raise BadTableOption(
            f"the config of topic {topic} describes an invalid table: {error}. See its settings "
            f"{_PREFIX}* with: penstock topic describe {topic}"
        ) from None
    return spec


def _spec_fields(settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings by the field names of TableSpec."""
    value, partition_columns = (
        settings["penstock.table.value"],
        settings["penstock.table.partition.by"],
    )
    has_prefix = settings["penstock.table.registry.prefix"] == "true"
    options: dict[str, Any] = {
        "format": settings["penstock.table.format"],
        "value": value,
        "partition_by": tuple(
            column.strip() for column in partition_columns.split(",") if column.strip()
        ),
        "upserts": settings["penstock.table.upsert"] == "true",
        "skip_bytes": REGISTRY_BYTES if has_prefix else 0,
    }
    if schema := settings["penstock.table.schema"]:
        is_avro = value == ValueKind.AVRO
        options |= {"avro": _read_avro(schema)} if is_avro else {"columns": schema}
    return options


def _read_avro(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadTableOption(f"its Avro schema is not valid JSON: {error}") from None


def _all_topics(client: BlockingClient) -> list[str]:
    topics: Iterable[TopicMetadata] = client.metadata().topics.values()
    return [topic.name for topic in topics if topic.exists and not topic.is_internal]
