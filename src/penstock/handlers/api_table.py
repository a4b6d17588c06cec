"""The only list of what this broker serves: it feeds dispatch and ApiVersions alike.

A handler that is not here does not exist for clients. Each is one file with an `API` of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock.handlers.api import Api
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import preload

_APIS: tuple[Api, ...] = (
    alter_configs.API,
    create_partitions.API,
    create_topics.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_log_dirs.API,
    describe_producers.API,
    describe_topic_partitions.API,
    fetch.API,
    find_coordinator.API,
    incremental_alter_configs.API,
    init_producer_id.API,
    list_offsets.API,
    metadata.API,
    offset_for_leader_epoch.API,
    produce.API,
)

APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {api.key: api for api in (*_APIS, api_versions.make_api(_APIS))}
)
assert len(APIS) == len(_APIS) + 1, "an API stands twice in the table"


def preload_schemas() -> None:
    """Import every served schema now: about 10 ms each, not to be paid in front of a client."""
    preload({key: api.versions for key, api in APIS.items()})
