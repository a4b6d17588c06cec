"""Every API checks permissions before it does or reveals anything: an API without a row fails.

A row has the request, the check that it must cause, and the error code of a caller without
permissions.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.unit.apis.harness import ApiHarness, batch, topic_id_of

from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import GroupSummary
from penstock.coordinators.transaction.requests import (
    ListedTransactions,
    ListTransactions,
    TransactionSummary,
)
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.message_class import WireMessage
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
GROUP, TRANSACTIONAL_ID = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
BY_SCHEMA = range(3, 1000)  # of Produce; test_old_produce has the older versions


class Row(NamedTuple):
    request: dict[str, Any]
    requested: tuple[AclOperation, ResourceType, str]
    code: ErrorCode
    has_code: bool = True  # if False, hidden entries may be left out without an error
    versions: range = range(1000)  # the versions that have this row


def on_topic(operation: AclOperation, topic: str) -> tuple[AclOperation, ResourceType, str]:
    return operation, TOPIC, topic


def on_cluster(operation: AclOperation) -> tuple[AclOperation, ResourceType, str]:
    return operation, CLUSTER, CLUSTER_NAME


def on_group(operation: AclOperation) -> tuple[AclOperation, ResourceType, str]:
    return operation, GROUP, "g"


def offsets_of(topic: str, **values: Any) -> dict[str, Any]:
    return {"name": topic, "topic_id": topic_id_of("there"), **values}


def rows(topic: str) -> dict[ApiKey, list[Row]]:
    """The same rows for a topic that exists and for one that does not."""
    return {
        ApiKey.PRODUCE: [
            Row(
                {
                    "acks": 1,
                    "topic_data": [
                        {"name": topic, "partition_data": [{"index": 0, "records": batch()}]}
                    ],
                },
                on_topic(AclOperation.WRITE, topic),
                TOPIC_DENIED,
                versions=BY_SCHEMA,
            ),
            Row(
                {
                    "acks": 1,
                    "transactional_id": "t",
                    "topic_data": [
                        {
                            "name": topic,
                            "partition_data": [
                                {
                                    "index": 0,
                                    "records": batch(
                                        b"v",
                                        producer_id=1,
                                        producer_epoch=0,
                                        base_sequence=0,
                                        transactional=True,
                                    ),
                                }
                            ],
                        }
                    ],
                },
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                versions=BY_SCHEMA,
            ),
        ],
        ApiKey.FETCH: [
            Row(
                {
                    "max_wait": timedelta(seconds=1),
                    "min_bytes": 1,
                    "replica_id": -1,
                    "topics": [{"topic": topic, "partitions": [{"partition_max_bytes": 1}]}],
                },
                on_topic(AclOperation.READ, topic),
                TOPIC_DENIED,
                versions=range(13),
            ),
            Row(
                {"topics": [{"topic_id": topic_id_of("there"), "partitions": [{}]}]},
                on_topic(AclOperation.READ, "there"),
                TOPIC_DENIED,
                versions=range(13, 100),
            ),
            Row(
                {
                    "replica_id": 2,
                    "replica_state": {"replica_id": 2},
                    "topics": [
                        {
                            "topic": topic,
                            "topic_id": topic_id_of("there"),
                            "partitions": [{"partition_max_bytes": 1}],
                        }
                    ],
                },
                on_cluster(AclOperation.CLUSTER_ACTION),
                TOPIC_DENIED,
            ),
        ],
        ApiKey.METADATA: [
            Row({"topics": [{"name": topic}]}, on_topic(AclOperation.DESCRIBE, topic), TOPIC_DENIED)
        ],
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
            Row(
                {"topics": [{"name": topic}], "response_partition_limit": 100},
                on_topic(AclOperation.DESCRIBE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.LIST_OFFSETS: [
            Row(
                {"topics": [{"name": topic, "partitions": [{"timestamp": -1}]}]},
                on_topic(AclOperation.DESCRIBE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.OFFSET_FOR_LEADER_EPOCH: [
            Row(
                {"topics": [{"topic": topic, "partitions": [{}]}]},
                on_topic(AclOperation.DESCRIBE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.DESCRIBE_PRODUCERS: [
            Row(
                {"topics": [{"name": topic, "partition_indexes": [0]}]},
                on_topic(AclOperation.READ, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.INIT_PRODUCER_ID: [
            Row({}, on_cluster(AclOperation.IDEMPOTENT_WRITE), CLUSTER_DENIED),
            Row(
                {"transactional_id": "t"},
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ),
        ],
        ApiKey.FIND_COORDINATOR: [
            Row(
                {"key": "g", "coordinator_keys": ["g"]},
                on_group(AclOperation.DESCRIBE),
                GROUP_DENIED,
            ),
            Row(
                {"key": "t", "key_type": 1, "coordinator_keys": ["t"]},
                (AclOperation.DESCRIBE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
                versions=range(1, 100),
            ),
        ],
        ApiKey.JOIN_GROUP: [Row({"group_id": "g"}, on_group(AclOperation.READ), GROUP_DENIED)],
        ApiKey.SYNC_GROUP: [Row({"group_id": "g"}, on_group(AclOperation.READ), GROUP_DENIED)],
        ApiKey.HEARTBEAT: [Row({"group_id": "g"}, on_group(AclOperation.READ), GROUP_DENIED)],
        ApiKey.LEAVE_GROUP: [Row({"group_id": "g"}, on_group(AclOperation.READ), GROUP_DENIED)],
        ApiKey.OFFSET_COMMIT: [
            Row(
                {"group_id": "g", "topics": [offsets_of(topic, partitions=[{}])]},
                on_group(AclOperation.READ),
                GROUP_DENIED,
            )
        ],
        ApiKey.TXN_OFFSET_COMMIT: [
            Row(
                {
                    "transactional_id": "t",
                    "group_id": "g",
                    "topics": [{"name": topic, "partitions": [{}]}],
                },
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )
        ],
        ApiKey.ADD_PARTITIONS_TO_TXN: [
            Row(
                {
                    "v3_and_below_transactional_id": "t",
                    "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
                },
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
                versions=range(4),
            ),
            Row(
                {"transactions": [{"transactional_id": "t", "topics": []}]},
                on_cluster(AclOperation.CLUSTER_ACTION),
                CLUSTER_DENIED,
                versions=range(4, 100),
            ),
        ],
        ApiKey.ADD_OFFSETS_TO_TXN: [
            Row(
                {"transactional_id": "t", "group_id": "g"},
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
            )
        ],
        ApiKey.END_TXN: [
            Row(
                {"transactional_id": "t"},
                (AclOperation.WRITE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
            )
        ],
        ApiKey.DESCRIBE_TRANSACTIONS: [
            Row(
                {"transactional_ids": ["t"]},
                (AclOperation.DESCRIBE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
            )
        ],
        ApiKey.LIST_TRANSACTIONS: [
            Row(
                {},
                (AclOperation.DESCRIBE, TRANSACTIONAL_ID, "t"),
                TRANSACTION_DENIED,
                has_code=False,
            )
        ],
        # Sent by brokers, or by an operator.
        ApiKey.WRITE_TXN_MARKERS: [
            Row(
                {"markers": [{"topics": [{"name": topic, "partition_indexes": [0]}]}]},
                requested,
                CLUSTER_DENIED,
            )
            for requested in (
                on_cluster(AclOperation.CLUSTER_ACTION),
                on_cluster(AclOperation.ALTER),
            )
        ],
        ApiKey.OFFSET_FETCH: [
            Row(
                {
                    "group_id": "g",
                    "topics": [offsets_of(topic, partition_indexes=[0])],
                    "groups": [
                        {"group_id": "g", "topics": [offsets_of(topic, partition_indexes=[0])]}
                    ],
                },
                on_group(AclOperation.DESCRIBE),
                GROUP_DENIED,
            )
        ],
        ApiKey.OFFSET_DELETE: [
            Row(
                {"group_id": "g", "topics": [{"name": topic, "partitions": [{}]}]},
                on_group(AclOperation.DELETE),
                GROUP_DENIED,
            )
        ],
        # Entries without permission are left out.
        ApiKey.LIST_GROUPS: [
            Row({}, on_cluster(AclOperation.DESCRIBE), CLUSTER_DENIED, has_code=False),
            Row({}, on_group(AclOperation.DESCRIBE), GROUP_DENIED, has_code=False),
        ],
        ApiKey.DESCRIBE_GROUPS: [
            Row({"groups": ["g"]}, on_group(AclOperation.DESCRIBE), GROUP_DENIED)
        ],
        ApiKey.CONSUMER_GROUP_HEARTBEAT: [
            Row(
                {"group_id": "g", "subscribed_topic_names": [topic]},
                on_group(AclOperation.READ),
                GROUP_DENIED,
            )
        ],
        ApiKey.CONSUMER_GROUP_DESCRIBE: [
            Row({"group_ids": ["g"]}, on_group(AclOperation.DESCRIBE), GROUP_DENIED)
        ],
        ApiKey.DELETE_GROUPS: [
            Row({"groups_names": ["g"]}, on_group(AclOperation.DELETE), GROUP_DENIED)
        ],
        ApiKey.CREATE_TOPICS: [
            Row(
                {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}]},
                on_topic(AclOperation.CREATE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.DELETE_TOPICS: [
            Row(
                {"topic_names": [topic], "topics": [{"name": topic}]},
                on_topic(AclOperation.DELETE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.CREATE_PARTITIONS: [
            Row(
                {"topics": [{"name": topic, "count": 2}]},
                on_topic(AclOperation.ALTER, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.DELETE_RECORDS: [
            Row(
                {"topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]},
                on_topic(AclOperation.DELETE, topic),
                TOPIC_DENIED,
            )
        ],
        ApiKey.DESCRIBE_CONFIGS: [
            Row(
                {"resources": [{"resource_type": 2, "resource_name": topic}]},
                on_topic(AclOperation.DESCRIBE_CONFIGS, topic),
                TOPIC_DENIED,
            ),
            Row(
                {"resources": [{"resource_type": 4, "resource_name": "1"}]},
                on_cluster(AclOperation.DESCRIBE_CONFIGS),
                CLUSTER_DENIED,
            ),
        ],
        ApiKey.ALTER_CONFIGS: [
            Row(
                {"resources": [{"resource_type": 2, "resource_name": topic}]},
                on_topic(AclOperation.ALTER_CONFIGS, topic),
                TOPIC_DENIED,
            ),
            Row(
                {"resources": [{"resource_type": 4, "resource_name": ""}]},
                on_cluster(AclOperation.ALTER_CONFIGS),
                CLUSTER_DENIED,
            ),
        ],
        ApiKey.INCREMENTAL_ALTER_CONFIGS: [
            Row(
                {"resources": [{"resource_type": 2, "resource_name": topic}]},
                on_topic(AclOperation.ALTER_CONFIGS, topic),
                TOPIC_DENIED,
            )
        ],
        # Everybody may see the brokers, as in Metadata.
        ApiKey.DESCRIBE_CLUSTER: [
            Row(
                {"include_cluster_authorized_operations": True, "endpoint_type": 1},
                on_cluster(AclOperation.DESCRIBE),
                CLUSTER_DENIED,
                has_code=False,
            ),
        ],
        ApiKey.ELECT_LEADERS: [
            Row(
                {"topic_partitions": [{"topic": topic, "partitions": [0]}]},
                on_cluster(AclOperation.ALTER),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
            Row(
                {"topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]},
                on_cluster(AclOperation.ALTER),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.LIST_PARTITION_REASSIGNMENTS: [
            Row({"topics": None}, on_cluster(AclOperation.DESCRIBE), CLUSTER_DENIED)
        ],
        ApiKey.LIST_CONFIG_RESOURCES: [
            Row({}, on_cluster(AclOperation.DESCRIBE_CONFIGS), CLUSTER_DENIED)
        ],
        ApiKey.ALTER_PARTITION: [
            Row({"broker_id": 1}, on_cluster(AclOperation.CLUSTER_ACTION), CLUSTER_DENIED)
        ],
        ApiKey.DESCRIBE_ACLS: [
            Row(
                {
                    "resource_type_filter": 1,
                    "pattern_type_filter": 1,
                    "operation": 1,
                    "permission_type": 1,
                },
                on_cluster(AclOperation.DESCRIBE),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.CREATE_ACLS: [
            Row(
                {
                    "creations": [
                        {
                            "resource_type": 2,
                            "resource_name": topic,
                            "principal": "User:a",
                            "host": "*",
                            "operation": 3,
                            "permission_type": 3,
                        }
                    ]
                },
                on_cluster(AclOperation.ALTER),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.DELETE_ACLS: [
            Row(
                {
                    "filters": [
                        {
                            "resource_type_filter": 1,
                            "pattern_type_filter": 1,
                            "operation": 1,
                            "permission_type": 1,
                        }
                    ]
                },
                on_cluster(AclOperation.ALTER),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [
            Row({"users": None}, on_cluster(AclOperation.DESCRIBE), CLUSTER_DENIED)
        ],
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [
            Row(
                {"deletions": [{"name": "ada", "mechanism": 1}], "upsertions": []},
                on_cluster(AclOperation.ALTER),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.DESCRIBE_CLIENT_QUOTAS: [
            Row({"components": []}, on_cluster(AclOperation.DESCRIBE_CONFIGS), CLUSTER_DENIED)
        ],
        ApiKey.ALTER_CLIENT_QUOTAS: [
            Row(
                {
                    "entries": [
                        {
                            "entity": [{"entity_type": "user", "entity_name": "a"}],
                            "ops": [{"key": "producer_byte_rate", "value": 1024.0}],
                        }
                    ]
                },
                on_cluster(AclOperation.ALTER_CONFIGS),
                CLUSTER_DENIED,
            )
        ],
        ApiKey.DESCRIBE_LOG_DIRS: [
            Row(
                {"topics": None},
                on_cluster(AclOperation.DESCRIBE),
                CLUSTER_DENIED,
                has_code=False,
            )
        ],
    }


# They describe the software only, and let a caller in.
EXEMPT = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
CASES = [
    pytest.param(key, version, topic, position, id=f"{key.title}-{version}-{topic}-{position}")
    for topic in ("there", "never")
    for key, item in rows(topic).items()
    for position, row in enumerate(item)
    for version in APIS[key].versions
    if version in row.versions
]


def test_every_api_has_a_row() -> None:
    assert set(rows("any")) | EXEMPT == set(APIS)


@pytest.mark.parametrize(("key", "version", "topic", "position"), CASES)
def test_a_caller_without_permissions_changes_nothing_and_is_refused(
    shared: ApiHarness, key: ApiKey, version: int, topic: str, position: int
) -> None:
    row = rows(topic)[key][position]
    shared.guard.checked.clear()
    reply = shared.ask(key, version, **row.request)
    assert row.requested in shared.guard.checked
    codes = {get_error(code) for code in error_codes(reply)} - {ErrorCode.NONE}
    assert codes <= {row.code}
    assert codes or not row.has_code
    assert key is not ApiKey.LIST_GROUPS or reply.groups == ()
    assert key is not ApiKey.LIST_TRANSACTIONS or reply.transaction_states == ()
    assert list(shared.cluster.topics) == ["there"]
    assert all(
        requested == (frozenset(), frozenset()) for requested in shared.groups.requests
    )  # ListGroups only
    assert all(requested == ListTransactions() for requested in shared.transactions.requests)
    assert shared.replicas.get(TopicPartition("there", 0)).log_end_offset == 0


@pytest.mark.parametrize("key", sorted(set(APIS) - EXEMPT))
def test_responses_do_not_reveal_whether_a_topic_exists(shared: ApiHarness, key: ApiKey) -> None:
    for there, never in zip(rows("there")[key], rows("never")[key], strict=True):
        version = max(version for version in APIS[key].versions if version in there.versions)
        returned = [shared.send(key, version, **row.request).bytes[8:] for row in (there, never)]
        assert len({data.replace(b"there", b"never") for data in returned}) == 1


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHarness]:
    """One broker for all rows, because a denied request must not change it."""
    folder = tmp_path_factory.mktemp("access")
    harness = ApiHarness(folder, settings={"log.dirs": str(folder)})
    harness.make_topic("there")
    harness.groups.listed = [GroupSummary("g", "consumer", "Stable", "classic")]
    harness.transactions.listed = ListedTransactions(
        ErrorCode.NONE, (), (TransactionSummary("t", 1, "Ongoing"),)
    )
    harness.guard.denies_all = True
    yield harness
    harness.close()


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code of a message, however deep it is nested."""
    for field in message.__fields__:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, WireMessage):
                    yield from error_codes(item)
