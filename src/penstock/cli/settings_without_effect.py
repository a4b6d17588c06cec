"""Finds settings that a broker stores and does not act on, by what it documents about them.

Only Penstock's brokers document this: of Kafka's, nothing is found.
"""

from collections.abc import Collection

import typer

from penstock.client.admin_values import ConfigResource
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError


async def find_without_effect(
    client: ClusterClient, resource: ConfigResource, names: Collection[str]
) -> dict[str, str]:
    """Setting -> why it has no effect, of those in `names`."""
    if not names:
        return {}
    try:
        described = await client.admin.describe_configs(
            [resource], names=list(names), with_documentation=True
        )
    except ClientError:
        return {}  # the caller may not describe it
    return {
        entry.name: entry.without_effect
        for entry in described.get(resource, [])
        if entry.without_effect is not None and entry.name in names
    }


def warn(without_effect: dict[str, str]) -> None:
    for name, reason in without_effect.items():
        typer.echo(f"penstock: {name} changes nothing here: {reason}", err=True)
