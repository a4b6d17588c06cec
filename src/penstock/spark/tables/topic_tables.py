"""Which topics want a table, and what table: settings of the topics, asked of the cluster."""

from collections.abc import Iterable, Mapping

from penstock.client.admin_values import Resource, ResourceKind
from penstock.client.metadata import TopicMetadata
from penstock.spark.connections import BlockingClient
from penstock.spark.tables.spec import TableFormat, TableSpec, ValueKind

_PREFIX = "penstock.table."
_NO_TABLE = "none"


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
    value = ValueKind(settings["penstock.table.value"])
    divided_by = settings["penstock.table.partition.by"].split(",")
    return TableSpec(
        topic=topic,
        format=TableFormat(settings["penstock.table.format"]),
        value=value,
        evolves=value is ValueKind.JSON,
        partition_by=tuple(each.strip() for each in divided_by if each.strip()),
        upserts=settings["penstock.table.upsert"] == "true",
    )


def _all_topics(client: BlockingClient) -> list[str]:
    topics: Iterable[TopicMetadata] = client.metadata().topics.values()
    return [each.name for each in topics if each.exists and not each.is_internal]
