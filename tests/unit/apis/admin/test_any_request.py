"""Whatever a request contains, a client can decode its response."""

import random
import zlib

import pytest
from tests.profile import scaled
from tests.unit.apis.admin.harness import AdminApiHarness, topic_state
from tests.unit.protocol.message_samples import sample

from penstock.apis.admin import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from penstock.apis.api import Api
from penstock.apis.cluster import alter_partition, describe_cluster, describe_topic_partitions
from penstock.apis.data import delete_records
from penstock.model.errors import ErrorCode
from penstock.protocol.messages import get_request_schema

APIS = (
    alter_configs.API,
    alter_partition.API,
    alter_partition_reassignments.API,
    create_partitions.API,
    create_topics.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_log_dirs.API,
    describe_topic_partitions.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    list_partition_reassignments.API,
)


@pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.key.title}-{version}")
        for api in APIS
        for version in api.versions
    ],
)
def test_any_request_has_a_decodable_response(
    harness: AdminApiHarness, api: Api, version: int
) -> None:
    harness.serve(topic_state("a"))
    source = random.Random(zlib.crc32(f"{api.key.title} {version}".encode()))
    schema = get_request_schema(api.key, version)
    for _ in range(scaled(test=8, verify=150, release=1500)):
        harness.ask_with(api, version, sample(schema, source, width=3))


LONG = "é" * 16_000  # the most bytes that a string of the older versions can have


def test_an_error_message_is_clipped_however_long_the_name_is(harness: AdminApiHarness) -> None:
    topic = {"name": LONG, "num_partitions": 1, "replication_factor": 1}
    topic |= {"assignments": [], "configs": []}
    (created,) = harness.ask(create_topics.API, 2, topics=[topic, topic]).topics
    more = {"name": LONG, "count": 2, "assignments": None}
    grown = harness.ask(create_partitions.API, 0, topics=[more, more], validate_only=False)
    setting = {"name": LONG, "value": None}
    resource = {"resource_type": 2, "resource_name": LONG, "configs": [setting]}
    altered = harness.ask(alter_configs.API, 0, resources=[resource], validate_only=False)
    requested = {"resource_type": 2, "resource_name": LONG, "configuration_keys": None}
    described = harness.ask(describe_configs.API, 1, resources=[requested])
    refused = [created, *grown.results, *altered.responses, *described.results]
    assert all(item.error_code != ErrorCode.NONE and item.error_message for item in refused)
