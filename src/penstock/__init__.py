"""Penstock: a Kafka-compatible log in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin_topics import OffsetInfo, TopicListing
    from penstock.client.admin_values import (
        AlterConfigOp,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        CreatedTopic,
        LogDirDescription,
        NewTopic,
    )
    from penstock.client.async_admin import AsyncAdmin
    from penstock.client.blocking_admin import Admin
    from penstock.client.consumer import Consumer
    from penstock.client.errors import (
        AuthenticationFailed,
        BrokersUnreachable,
        ClientClosed,
        ClientError,
        ConnectFailed,
        ConsumeFailed,
        Disconnected,
        FlushTimedOut,
        GroupNotEmpty,
        GroupNotFound,
        InvalidAddress,
        InvalidClientConfig,
        InvalidConfig,
        ItemsFailed,
        MixedAssignments,
        OutOfTime,
        ProducerFenced,
        QueueFull,
        RebalanceFailed,
        RefusedByBroker,
        RequestTimedOut,
        SendFailed,
        SendTimedOut,
        TlsFailed,
        TopicAlreadyExists,
        TransactionAbortable,
        TransactionOver,
        UnknownTopicOrPartition,
        UnsupportedByBroker,
        ZooKeeperUnavailable,
    )
    from penstock.client.group_values import (
        CommittedOffset,
        GroupDescription,
        GroupMember,
        GroupPartition,
        ListedGroup,
    )
    from penstock.client.half_messages import HalfCheck, HalfMessages, HalfRecord
    from penstock.client.message import Message, RecordMetadata
    from penstock.client.offset_reset import PlannedReset
    from penstock.client.producer import Producer
    from penstock.client.reassignments import PartitionReassignment
    from penstock.client.replica_descriptions import ReplicaDescription
    from penstock.client.scram_users import ScramUser
    from penstock.client.topic_descriptions import PartitionDescription, TopicDescription
    from penstock.client.transaction_values import (
        ListedTransaction,
        OpenTransaction,
        TransactionDescription,
    )
    from penstock.client.transactional_producer import TransactionalProducer
    from penstock.model.acls import (
        AccessControlEntry,
        AclBinding,
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourcePattern,
        ResourceType,
    )
    from penstock.model.admin import ConfigOperation, ConfigResourceType
    from penstock.model.errors import ErrorCode
    from penstock.model.ids import TopicPartition
    from penstock.model.quotas import QuotaEntity, QuotaFilter, QuotaKey, QuotaMatch
    from penstock.testing.embedded_broker import Broker
    from penstock.zookeeper_consumer.consumer import ZooKeeperConsumer

__version__ = "0.1.0"

__all__ = [
    "AccessControlEntry",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AlterConfigOp",
    "AsyncAdmin",
    "AuthenticationFailed",
    "Broker",
    "BrokersUnreachable",
    "ClientClosed",
    "ClientError",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConnectFailed",
    "ConsumeFailed",
    "Consumer",
    "CreatedTopic",
    "Disconnected",
    "ErrorCode",
    "FlushTimedOut",
    "GroupDescription",
    "GroupMember",
    "GroupNotEmpty",
    "GroupNotFound",
    "GroupPartition",
    "HalfCheck",
    "HalfMessages",
    "HalfRecord",
    "InvalidAddress",
    "InvalidClientConfig",
    "InvalidConfig",
    "ItemsFailed",
    "ListedGroup",
    "ListedTransaction",
    "LogDirDescription",
    "Message",
    "MixedAssignments",
    "NewTopic",
    "OffsetInfo",
    "OpenTransaction",
    "OutOfTime",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "PlannedReset",
    "Producer",
    "ProducerFenced",
    "QueueFull",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaKey",
    "QuotaMatch",
    "RebalanceFailed",
    "RecordMetadata",
    "RefusedByBroker",
    "ReplicaDescription",
    "RequestTimedOut",
    "ResourcePattern",
    "ResourceType",
    "ScramUser",
    "SendFailed",
    "SendTimedOut",
    "TlsFailed",
    "TopicAlreadyExists",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TransactionAbortable",
    "TransactionDescription",
    "TransactionOver",
    "TransactionalProducer",
    "UnknownTopicOrPartition",
    "UnsupportedByBroker",
    "ZooKeeperConsumer",
    "ZooKeeperUnavailable",
    "__version__",
]

_ACLS = "penstock.model.acls"
_ADMIN_VALUES = "penstock.client.admin_values"
_ERRORS = "penstock.client.errors"
_GROUP_VALUES = "penstock.client.group_values"
_HALF_MESSAGES = "penstock.client.half_messages"
_QUOTAS = "penstock.model.quotas"
_TRANSACTION_VALUES = "penstock.client.transaction_values"
# Imported when first used, so that `import penstock` costs nothing.
_EXPORTS = {
    "AccessControlEntry": _ACLS,
    "AclBinding": _ACLS,
    "AclFilter": _ACLS,
    "AclPermission": _ACLS,
    "PatternType": _ACLS,
    "ResourcePattern": _ACLS,
    "AclOperation": _ACLS,
    "QuotaEntity": _QUOTAS,
    "QuotaFilter": _QUOTAS,
    "QuotaKey": _QUOTAS,
    "QuotaMatch": _QUOTAS,
    "ResourceType": _ACLS,
    "ScramUser": "penstock.client.scram_users",
    "Admin": "penstock.client.blocking_admin",
    "AlterConfigOp": _ADMIN_VALUES,
    "AsyncAdmin": "penstock.client.async_admin",
    "Broker": "penstock.testing.embedded_broker",
    "AuthenticationFailed": _ERRORS,
    "BrokersUnreachable": _ERRORS,
    "ClientClosed": _ERRORS,
    "ClientError": _ERRORS,
    "ClusterDescription": _ADMIN_VALUES,
    "CommittedOffset": _GROUP_VALUES,
    "ConfigEntry": _ADMIN_VALUES,
    "ConfigOperation": "penstock.model.admin",
    "ConfigResource": _ADMIN_VALUES,
    "ConfigResourceType": "penstock.model.admin",
    "ConnectFailed": _ERRORS,
    "ConsumeFailed": _ERRORS,
    "Consumer": "penstock.client.consumer",
    "CreatedTopic": _ADMIN_VALUES,
    "Disconnected": _ERRORS,
    "ErrorCode": "penstock.model.errors",
    "FlushTimedOut": _ERRORS,
    "GroupDescription": _GROUP_VALUES,
    "GroupMember": _GROUP_VALUES,
    "GroupNotEmpty": _ERRORS,
    "GroupNotFound": _ERRORS,
    "GroupPartition": _GROUP_VALUES,
    "HalfCheck": _HALF_MESSAGES,
    "HalfMessages": _HALF_MESSAGES,
    "HalfRecord": _HALF_MESSAGES,
    "InvalidAddress": _ERRORS,
    "InvalidClientConfig": _ERRORS,
    "InvalidConfig": _ERRORS,
    "ItemsFailed": _ERRORS,
    "ListedGroup": _GROUP_VALUES,
    "ListedTransaction": _TRANSACTION_VALUES,
    "LogDirDescription": _ADMIN_VALUES,
    "Message": "penstock.client.message",
    "NewTopic": _ADMIN_VALUES,
    "OffsetInfo": "penstock.client.admin_topics",
    "OpenTransaction": _TRANSACTION_VALUES,
    "MixedAssignments": _ERRORS,
    "OutOfTime": _ERRORS,
    "PartitionDescription": "penstock.client.topic_descriptions",
    "PartitionReassignment": "penstock.client.reassignments",
    "PlannedReset": "penstock.client.offset_reset",
    "Producer": "penstock.client.producer",
    "ProducerFenced": _ERRORS,
    "QueueFull": _ERRORS,
    "RebalanceFailed": _ERRORS,
    "RecordMetadata": "penstock.client.message",
    "RefusedByBroker": _ERRORS,
    "ReplicaDescription": "penstock.client.replica_descriptions",
    "RequestTimedOut": _ERRORS,
    "SendFailed": _ERRORS,
    "SendTimedOut": _ERRORS,
    "TlsFailed": _ERRORS,
    "TopicAlreadyExists": _ERRORS,
    "TopicDescription": "penstock.client.topic_descriptions",
    "TopicListing": "penstock.client.admin_topics",
    "TopicPartition": "penstock.model.ids",
    "TransactionAbortable": _ERRORS,
    "TransactionDescription": _TRANSACTION_VALUES,
    "TransactionOver": _ERRORS,
    "TransactionalProducer": "penstock.client.transactional_producer",
    "UnknownTopicOrPartition": _ERRORS,
    "UnsupportedByBroker": _ERRORS,
    "ZooKeeperConsumer": "penstock.zookeeper_consumer.consumer",
    "ZooKeeperUnavailable": _ERRORS,
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
