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
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from penstock.handlers.api import Api
from penstock.handlers.shapes import response_shape
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder import decoder_of
from penstock.protocol.encoder import encoder_of
from penstock.protocol.messages import get_request_schema, get_response_schema

_APIS: tuple[Api, ...] = (
    alter_configs.API,
    create_partitions.API,
    create_topics.API,
    delete_groups.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_groups.API,
    describe_log_dirs.API,
    describe_producers.API,
    describe_topic_partitions.API,
    fetch.API,
    find_coordinator.API,
    heartbeat.API,
    incremental_alter_configs.API,
    init_producer_id.API,
    join_group.API,
    leave_group.API,
    list_groups.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_delete.API,
    offset_fetch.API,
    offset_for_leader_epoch.API,
    produce.API,
    sync_group.API,
)

APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {api.key: api for api in (*_APIS, api_versions.make_api(_APIS))}
)
assert len(APIS) == len(_APIS) + 1, "an API stands twice in the table"


# What every client asks on its way to its first record, in that order.
_ASKED_FIRST = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FETCH,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
)
# Read and written by position: no schema is needed for them.
_WITHOUT_REQUEST_SCHEMA = frozenset((ApiKey.PRODUCE,))
_WITHOUT_RESPONSE_SCHEMA = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))


def preload_schemas() -> None:
    """Import and compile what handlers use of every served version: about 8 ms each, not to be
    paid in front of a client. May run on a thread, beside the event loop: 2 s in all."""
    for key in dict.fromkeys((*_ASKED_FIRST, *APIS)):
        for version in reversed(APIS[key].versions):  # newest first, as most clients ask
            if key not in _WITHOUT_REQUEST_SCHEMA:
                decoder_of(get_request_schema(key, version))
            if key not in _WITHOUT_RESPONSE_SCHEMA:
                encoder_of(get_response_schema(key, version))
                response_shape(key, version)
