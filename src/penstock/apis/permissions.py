"""Which permissions each API needs: the table that handlers ask from, and that docs/acls.md has.

Not the decision. Invariant: a handler cannot ask for what its API has no row for (`access`), and an
API without a row is not served.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.private_keys import PrivateKey
from penstock.security.authorizer import AclOperation, ResourceType

CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Permission(NamedTuple):
    """`error` is what a caller without it gets; None: no error, and `note` says what instead."""

    operation: AclOperation
    resource: ResourceType
    error: ErrorCode | None
    note: str = ""


def _topic(operation: AclOperation, note: str = "") -> Permission:
    return Permission(operation, ResourceType.TOPIC, TOPIC_DENIED, note)


def _group(operation: AclOperation, note: str = "") -> Permission:
    return Permission(operation, ResourceType.GROUP, GROUP_DENIED, note)


def _cluster(operation: AclOperation, note: str = "") -> Permission:
    return Permission(operation, ResourceType.CLUSTER, CLUSTER_DENIED, note)


def _transaction(operation: AclOperation, note: str = "") -> Permission:
    return Permission(operation, ResourceType.TRANSACTIONAL_ID, TRANSACTION_DENIED, note)


_ALTER, _ALTER_CONFIGS = AclOperation.ALTER, AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION, _CREATE, _DELETE = (
    AclOperation.CLUSTER_ACTION,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE

_LEFT_OUT = "topics without it are left out"
_BROKER = (_cluster(_CLUSTER_ACTION, "and only on the listener of brokers"),)
_CONFIGS = "the topic's settings"

_KAFKA: Mapping[ApiKey, tuple[Permission, ...]] = {
    ApiKey.PRODUCE: (
        _topic(
            _WRITE,
            "per partition, and on T for T.half, T.half.decisions; with acks=0 the connection is "
            "closed",
        ),
        _transaction(_WRITE, "if any batch is transactional; all partitions are refused"),
    ),
    ApiKey.FETCH: (
        _topic(_READ, "per partition"),
        Permission(
            _CLUSTER_ACTION,
            ResourceType.CLUSTER,
            TOPIC_DENIED,
            "instead, for a follower, and only on the listener of brokers; every partition is "
            "refused",
        ),
    ),
    ApiKey.LIST_OFFSETS: (_topic(_DESCRIBE, "per partition"),),
    ApiKey.METADATA: (
        _topic(_DESCRIBE, f"by name; by id the name stays unknown; of all topics, {_LEFT_OUT}"),
        Permission(
            _CREATE,
            ResourceType.CLUSTER,
            TOPIC_DENIED,
            "or Create on the topic, to create a topic that is absent",
        ),
        _topic(_CREATE, "or Create on the cluster, to create a topic that is absent"),
        Permission(
            _DESCRIBE,
            ResourceType.CLUSTER,
            None,
            "for the operations that the caller may perform; without it there are none",
        ),
    ),
    ApiKey.OFFSET_COMMIT: (_group(_READ), _topic(_READ, "per partition")),
    ApiKey.OFFSET_FETCH: (
        _group(_DESCRIBE),
        _topic(_DESCRIBE, f"per partition; of all topics, {_LEFT_OUT}"),
    ),
    ApiKey.FIND_COORDINATOR: (
        _group(_DESCRIBE, "of a group"),
        _transaction(_DESCRIBE, "of a transactional id"),
    ),
    ApiKey.JOIN_GROUP: (_group(_READ),),
    ApiKey.HEARTBEAT: (_group(_READ),),
    ApiKey.LEAVE_GROUP: (_group(_READ),),
    ApiKey.SYNC_GROUP: (_group(_READ),),
    ApiKey.DESCRIBE_GROUPS: (_group(_DESCRIBE),),
    ApiKey.LIST_GROUPS: (
        Permission(_DESCRIBE, ResourceType.CLUSTER, None, "for all groups; otherwise"),
        Permission(_DESCRIBE, ResourceType.GROUP, None, "groups without it are left out"),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_TOPICS: (
        Permission(_CREATE, ResourceType.CLUSTER, TOPIC_DENIED, "or Create on the topic"),
        _topic(_CREATE, "or Create on the cluster"),
        _topic(
            _DESCRIBE_CONFIGS, "for the new topic's settings; the topic is created all the same"
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        Permission(_DELETE, ResourceType.CLUSTER, TOPIC_DENIED, "or Delete on the topic"),
        _topic(_DELETE, "or Delete on the cluster"),
        _topic(_DESCRIBE, "to be told the name behind an id, or that a topic does not exist"),
    ),
    ApiKey.DELETE_RECORDS: (_topic(_DELETE, "per partition"),),
    ApiKey.INIT_PRODUCER_ID: (
        _transaction(_WRITE, "with a transactional id"),
        _transaction(AclOperation.TWO_PHASE_COMMIT, "too, to prepare transactions"),
        _cluster(
            AclOperation.IDEMPOTENT_WRITE, "without a transactional id; or Write on any topic"
        ),
        Permission(
            _WRITE,
            ResourceType.TOPIC,
            CLUSTER_DENIED,
            "on any topic, instead of IdempotentWrite on the cluster",
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Permission(_CLUSTER_ACTION, ResourceType.CLUSTER, None, "for all topics; otherwise"),
        _topic(_DESCRIBE, "per partition"),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _transaction(_WRITE, "of a producer (versions 0-3)"),
        _topic(_WRITE, "of a producer; none of the partitions is added"),
        _cluster(_CLUSTER_ACTION, "of a broker (version 4 on), on the listener of brokers"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(_WRITE), _group(_READ)),
    ApiKey.END_TXN: (_transaction(_WRITE),),
    ApiKey.WRITE_TXN_MARKERS: (
        _cluster(_CLUSTER_ACTION, "on the listener of brokers; or"),
        _cluster(_ALTER, "to abort a hanging transaction"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        _transaction(_WRITE),
        _group(_READ),
        _topic(_READ, "per partition"),
    ),
    ApiKey.DESCRIBE_ACLS: (_cluster(_DESCRIBE),),
    ApiKey.CREATE_ACLS: (_cluster(_ALTER, "every rule is refused"),),
    ApiKey.DELETE_ACLS: (_cluster(_ALTER, "every filter is refused"),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_cluster(_DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_cluster(_ALTER_CONFIGS, "every change is refused"),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_cluster(_DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_cluster(_ALTER, "every user is refused"),),
    ApiKey.DESCRIBE_CONFIGS: (
        _cluster(_DESCRIBE_CONFIGS, "brokers, loggers and client metrics"),
        _topic(_DESCRIBE_CONFIGS, _CONFIGS),
        _group(_DESCRIBE_CONFIGS, "the group's settings"),
    ),
    ApiKey.ALTER_CONFIGS: (
        _cluster(_ALTER_CONFIGS, "brokers and client metrics"),
        _topic(_ALTER_CONFIGS, _CONFIGS),
        _group(_ALTER_CONFIGS, "the group's settings"),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _cluster(_ALTER_CONFIGS, "brokers, loggers and client metrics"),
        _topic(_ALTER_CONFIGS, _CONFIGS),
        _group(_ALTER_CONFIGS, "the group's settings"),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (
        _cluster(_DESCRIBE, "before version 3 the response is empty, without an error"),
    ),
    ApiKey.CREATE_PARTITIONS: (_topic(_ALTER),),
    ApiKey.DELETE_GROUPS: (_group(_DELETE),),
    ApiKey.ELECT_LEADERS: (_cluster(_ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_cluster(_ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_cluster(_DESCRIBE),),
    ApiKey.OFFSET_DELETE: (_group(_DELETE), _topic(_READ, "per partition")),
    ApiKey.ALTER_PARTITION: _BROKER,
    ApiKey.DESCRIBE_CLUSTER: (
        Permission(
            _DESCRIBE,
            ResourceType.CLUSTER,
            None,
            "for the operations that the caller may perform; without it there are none",
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (_topic(_READ, "per partition"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _transaction(_DESCRIBE),
        Permission(_DESCRIBE, ResourceType.TOPIC, None, _LEFT_OUT),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Permission(
            _DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            None,
            "transactional ids without it are left out",
        ),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _group(_READ),
        _topic(_DESCRIBE, "of each topic that is named; what a pattern finds still needs Read"),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _group(_DESCRIBE),
        _topic(_DESCRIBE, "of each topic of the group, which is refused whole"),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (_cluster(_DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_topic(_DESCRIBE, f"by name; of all topics, {_LEFT_OUT}"),),
}
_PRIVATE: Mapping[PrivateKey, tuple[Permission, ...]] = {
    PrivateKey.CONTROLLER_REQUEST: _BROKER,
    PrivateKey.CONTROLLED_SHUTDOWN: _BROKER,
    PrivateKey.FORWARDED_CONFIGS: _BROKER,
    PrivateKey.FAILED_REPLICAS: _BROKER,
    PrivateKey.REFUSED_BATCH: _BROKER,
    PrivateKey.DESCRIBE_METRICS: (_cluster(_DESCRIBE),),
    PrivateKey.DESCRIBE_REPLICAS: (Permission(_DESCRIBE, ResourceType.TOPIC, None, _LEFT_OUT),),
    PrivateKey.DEFER_MESSAGES: _BROKER,
    PrivateKey.END_DEFERRED: _BROKER,
    PrivateKey.APPEND_DEFERRED: _BROKER,
    PrivateKey.HALF_INTAKE: _BROKER,
    PrivateKey.HALF_ENDS: _BROKER,
    PrivateKey.APPEND_AUDIT: _BROKER,
    PrivateKey.END_DELAYED: (_topic(_WRITE),),
    PrivateKey.DESCRIBE_OFFSET_TIMES: (Permission(_DESCRIBE, ResourceType.TOPIC, None, _LEFT_OUT),),
}
PERMISSIONS: Mapping[ApiKey | PrivateKey, tuple[Permission, ...]] = MappingProxyType(
    dict([*_KAFKA.items(), *_PRIVATE.items()])
)

# What a handler may ask: (API key, operation, type of resource).
QUESTIONS = frozenset(
    (int(key), permission.operation, permission.resource)
    for key, permissions in PERMISSIONS.items()
    for permission in permissions
)
