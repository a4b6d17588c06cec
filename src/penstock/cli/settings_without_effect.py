"""Finds topic settings that a broker stores and does not act on, by what it documents about them.

Only Penstock's brokers document this: of Kafka's, nothing is found.
"""

from collections.abc import Collection

import typer

from penstock.client.admin_values import Resource, ResourceKind
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError

_START, _END = " (accepted, ", ")"  # as DescribeConfigs ends the documentation of such a setting


async def find_without_effect(
    client: ClusterClient, topic: str, names: Collection[str]
) -> dict[str, str]:
    """Setting -> why it has no effect, of those in `names`."""
    if not names:
        return {}
    resource = Resource(ResourceKind.TOPIC, topic)
    try:
        described = await client.admin.describe_configs(
            [resource], names=list(names), with_documentation=True
        )
    except ClientError:
        return {}  # the caller may not describe the topic
    reasons = {
        entry.name: find_reason(entry.documentation or "") for entry in described.get(resource, [])
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def find_reason(documentation: str) -> str | None:
    _, start, reason = documentation.rpartition(_START)
    return reason.removesuffix(_END) if start and reason.endswith(_END) else None


def warn(without_effect: dict[str, str]) -> None:
    for name, reason in without_effect.items():
        typer.echo(f"penstock: {name} is stored, but changes nothing here: {reason}", err=True)
