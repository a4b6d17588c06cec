"""The one error table: Kafka's codes and names, whether they are retriable, and messages for
people.

Lower packages raise typed errors; request handlers map them to these codes, which are all Kafka's.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class ErrorCode(IntEnum):
    """Kafka's error codes, usable as the integers they are on the wire."""

    is_retriable: bool  # the same request may succeed later, unchanged or after a metadata refresh
    message: str

    def __new__(cls, code: int, is_retriable: bool, message: str) -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.is_retriable = is_retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "unexpected error in the broker; its log has the details",
    )
    NONE = 0, False, ""
    OFFSET_OUT_OF_RANGE = (
        1,
        False,
        "the offset is not in the log: deleted already, or not written yet",
    )
    CORRUPT_MESSAGE = (
        2,
        True,
        "the record batch is damaged: its checksum, size or structure is wrong",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this broker does not have this topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = (
        5,
        True,
        "the partition has no leader at the moment; one is being elected",
    )
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "this broker does not lead the partition, or holds no replica of it; refresh the metadata",
    )
    REQUEST_TIMED_OUT = 7, True, "the request was not finished within its time limit"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not available here"
    MESSAGE_TOO_LARGE = 10, False, "a record batch is larger than the topic's max.message.bytes"
    STALE_CONTROLLER_EPOCH = (
        11,
        False,
        "a newer controller exists; requests of this one are rejected",
    )
    OFFSET_METADATA_TOO_LARGE = (
        12,
        False,
        "the metadata text of a committed offset is longer than offset.metadata.max.bytes",
    )
    NETWORK_EXCEPTION = 13, True, "the connection was lost before the response arrived"
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "the coordinator is still loading its state; try again shortly",
    )
    COORDINATOR_NOT_AVAILABLE = 15, True, "no coordinator is available; try again shortly"
    NOT_COORDINATOR = (
        16,
        True,
        "this broker is not the coordinator of the group or transactional id; find it again",
    )
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "the topic name is invalid, or the operation is not allowed on this topic",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "a record batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "fewer replicas are in sync than min.insync.replicas requires; nothing was written",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "the batch was written, but fewer replicas are in sync than min.insync.replicas requires",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, False, "the group has moved to another generation; join it again"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "the member shares no assignment protocol with the group, or named none",
    )
    INVALID_GROUP_ID = 24, False, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, False, "the group does not know this member; join it again"
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "the session timeout is below group.min or above group.max.session.timeout.ms",
    )
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing; join it again"
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        False,
        "the committed offset with its metadata is too large to store",
    )
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, False, "the record's timestamp is outside what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "this SASL mechanism is not enabled here"
    ILLEGAL_SASL_STATE = (
        34,
        False,
        "the request does not fit the current step of SASL authentication",
    )
    UNSUPPORTED_VERSION = 35, False, "this version of the request is not served here"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic with this name already exists"
    INVALID_PARTITIONS = 37, False, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is invalid"
    INVALID_CONFIG = 40, False, "a config is invalid"
    NOT_CONTROLLER = 41, True, "this broker is not the controller; refresh the metadata"
    INVALID_REQUEST = 42, False, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "the stored message format cannot answer this request",
    )
    POLICY_VIOLATION = 44, False, "a policy of this cluster rejects the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "a sequence number is missing between this batch and the producer's last one",
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        False,
        "this sequence number was already written, at an offset that is no longer known",
    )
    INVALID_PRODUCER_EPOCH = (
        47,
        False,
        "the producer epoch is stale: a newer producer has taken over",
    )
    INVALID_TXN_STATE = 48, False, "the transaction's state does not allow this step"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the transactional id belongs to another producer id"
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "the transaction timeout is above transaction.max.timeout.ms, or not positive",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "another operation of the same transaction is in progress; try again",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "the coordinator that sent these markers has been replaced",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not allowed to use this transactional id"
    SECURITY_DISABLED = (
        54,
        False,
        "no authorizer is configured, so there is nothing to change or list",
    )
    OPERATION_NOT_ATTEMPTED = 55, False, "not tried, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the log's disk failed; the partition moves to another broker"
    LOG_DIR_NOT_FOUND = 57, False, "this broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = (
        58,
        False,
        "authentication failed: unknown user or wrong credentials",
    )
    UNKNOWN_PRODUCER_ID = 59, False, "the producer id is unknown to this broker"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        False,
        "the principal neither owns nor may renew this delegation token",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "delegation tokens cannot be handled over this kind of connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "the fetch session is gone; start a new one"
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "the fetch session's epoch is not the expected one; start a new session",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "the leader has no listener with the name of this connection's listener",
    )
    TOPIC_DELETION_DISABLED = (
        73,
        False,
        "topics cannot be deleted here: delete.topic.enable is false",
    )
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch is stale; refresh the metadata"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch is newer than this broker's; try again"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "this client cannot read the partition's compression"
    STALE_BROKER_EPOCH = 77, False, "the broker has registered again since; its old epoch is stale"
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "the new leader's high watermark has not caught up yet; try again",
    )
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id of this response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group is full (group.max.size)"
    FENCED_INSTANCE_ID = 82, False, "another member has taken over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, True, "no leader election is needed"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment of this partition is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        False,
        "the group is subscribed to the topic, so its offsets cannot be deleted",
    )
    INVALID_RECORD = 87, False, "a record breaks a rule of its topic"
    UNSTABLE_OFFSET_COMMIT = (
        88,
        True,
        "a transaction has pending offset commits here; try again when it has ended",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        True,
        "a quota is exceeded; wait for the throttle time of the response",
    )
    PRODUCER_FENCED = 90, False, "a newer producer with this transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, False, "no such resource"
    DUPLICATE_RESOURCE = 92, False, "the request names the same resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the new credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, False, "sender and receiver disagree on the voter set"
    INVALID_UPDATE_VERSION = 95, False, "the update version is stale or invalid"
    FEATURE_UPDATE_FAILED = 96, False, "the finalized features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "a forwarded request's principal could not be read",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is not within the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "this broker has no topic with this id; refresh the metadata"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "another live broker uses this broker id"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker with this id is registered"
    INCONSISTENT_TOPIC_ID = (
        103,
        True,
        "the log belongs to a topic with another id; refresh the metadata",
    )
    INCONSISTENT_CLUSTER_ID = 104, False, "the request is for a cluster with another id"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "the fetch session mixes topic names and topic ids; start a new one",
    )
    INELIGIBLE_REPLICA = 107, False, "a replica of the new ISR is not eligible for it"
    NEW_LEADER_ELECTED = 108, False, "the change was made, and a new leader was elected with it"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "this offset is in tiered storage"
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "the member epoch is fenced; give up all partitions and join again",
    )
    UNRELEASED_INSTANCE_ID = (
        111,
        False,
        "another member still holds this instance id; it must leave first",
    )
    UNSUPPORTED_ASSIGNOR = 112, False, "none of the group's assignors is supported"
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "the member epoch is stale; take the new one from a heartbeat and try again",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request was sent to the wrong type of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "endpoints of this type are not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "no controller with this id is known"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "no such telemetry subscription, or an old one"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry is larger than this broker accepts"
    INVALID_REGISTRATION = 119, False, "the broker registration is invalid"
    TRANSACTION_ABORTABLE = (
        120,
        False,
        "the transaction failed; abort it and continue with the same transactional id",
    )
    INVALID_RECORD_STATE = (
        121,
        False,
        "the record is not in a state that allows this acknowledgement",
    )
    SHARE_SESSION_NOT_FOUND = 122, True, "no such share session; start a new one"
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        True,
        "the share session's epoch is not the expected one; start a new session",
    )
    FENCED_STATE_EPOCH = 124, False, "the share group's state epoch is fenced"
    INVALID_VOTER_KEY = 125, False, "the voter key does not match"
    DUPLICATE_VOTER = 126, False, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "no such voter in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, False, "bootstrap again: the current metadata is unusable"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the streams topology epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the streams topology epoch is stale"
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        True,
        "this broker has reached its limit of share sessions; try again later",
    )


class UnknownErrorCode(LookupError):
    """A code that is not in the table: from a newer release, or not Kafka's."""


def find_error(code: int) -> ErrorCode | None:
    return _BY_CODE.get(code)


def known_error(code: int) -> ErrorCode:
    """The error with this code, or UNKNOWN_SERVER_ERROR if a newer release defined it."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def get_error(code: int) -> ErrorCode:
    error = _BY_CODE.get(code)
    if error is None:
        last = max(_BY_CODE)
        raise UnknownErrorCode(f"error code {code} is not known: the table ends at {last}")
    return error


_BY_CODE: Mapping[int, ErrorCode] = MappingProxyType({error.value: error for error in ErrorCode})


class Refusal(Exception):
    """An operation was refused with one of Kafka's error codes."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message  # None: the code's own message suffices
        super().__init__(message or code.name)
