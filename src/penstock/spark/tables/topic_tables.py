"""Which topics want a table, and what table: settings of the topics, asked of the cluster."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.admin_values import Resource, ResourceKind
from penstock.client.metadata import TopicMetadata
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.spec import REGISTRY_BYTES, TableSpec, ValueKind, parse_spec
from penstock.spark.tables.table_schema import value_fields

_PREFIX = "penstock.table."
_NO_TABLE = "none"
# What earlier brokers do not tell.
_LATER = {"penstock.table.schema": "", "penstock.table.registry.prefix": "false"}


def find_wanted(client: BlockingClient, topics: Iterable[str] | None) -> dict[str, TableSpec]:
    """Of these topics, or of all of the cluster: those that have a setting for it."""
    names = sorted(_all_topics(client) if topics is None else topics)
    resources = [Resource(ResourceKind.TOPIC, name) for name in names]
    if not resources:
        return {}
    answers = client.run(lambda cluster: cluster.admin.describe_configs(resources))
    found = {
        resource.name: read_settings(
            resource.name,
            {each.name: each.value or "" for each in entries if each.name.startswith(_PREFIX)},
        )
        for resource, entries in answers.items()
    }
    return {name: spec for name, spec in found.items() if spec is not None}


def read_settings(topic: str, settings: Mapping[str, str]) -> TableSpec | None:
    """None: no table is wanted. A cluster that is not Penstock's knows none of these settings."""
    if not settings or settings["penstock.table.format"] == _NO_TABLE:
        return None
    try:
        spec = parse_spec({"topic": topic, **_said({**_LATER, **settings})})
        value_fields(spec)  # the broker takes any text for a schema
    except BadTableOption as error:
        raise BadTableOption(
            f"topic {topic} wants a table that cannot be: {error}. See its settings {_PREFIX}* "
            f"with: penstock topic describe {topic}"
        ) from None
    return spec


def _said(settings: Mapping[str, str]) -> dict[str, Any]:
    """By the names of a TableSpec."""
    value, divided_by = settings["penstock.table.value"], settings["penstock.table.partition.by"]
    has_prefix = settings["penstock.table.registry.prefix"] == "true"
    said: dict[str, Any] = {
        "format": settings["penstock.table.format"],
        "value": value,
        "partition_by": tuple(each.strip() for each in divided_by.split(",") if each.strip()),
        "upserts": settings["penstock.table.upsert"] == "true",
        "skip_bytes": REGISTRY_BYTES if has_prefix else 0,
    }
    if schema := settings["penstock.table.schema"]:
        is_avro = value == ValueKind.AVRO
        said |= {"avro": _read_avro(schema)} if is_avro else {"columns": schema}
    return said


def _read_avro(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadTableOption(f"its Avro schema is no JSON: {error}") from None


def _all_topics(client: BlockingClient) -> list[str]:
    topics: Iterable[TopicMetadata] = client.metadata().topics.values()
    return [each.name for each in topics if each.exists and not each.is_internal]
