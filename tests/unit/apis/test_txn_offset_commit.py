"""TxnOffsetCommit: every version, decoded and encoded."""

from typing import Any

import pytest
from tests.unit.apis.harness import ME, OTHER, ApiHarness

from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import CommitInTransaction, CommitOffsets, OffsetCommit
from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = APIS[KEY].versions
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 2)
NONE = ErrorCode.NONE


@pytest.fixture(name="harness")
def _harness(harness: ApiHarness) -> ApiHarness:
    harness.make_topic("orders", 2)
    harness.make_topic(OFFSETS_TOPIC, 3)
    harness.groups.partition = 2
    return harness


def entry(index: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 4,
        "committed_metadata": "note" if index else None,
    }


def commit(harness: ApiHarness, version: int, **values: Any) -> list[ErrorCode]:
    fields = {
        "transactional_id": "mine",
        "group_id": "g",
        "producer_id": 5,
        "producer_epoch": 1,
        "generation_id": 3,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [{"name": "orders", "partitions": [entry(1, 11), entry(0, 10)]}],
        **values,
    }
    reply = harness.ask(KEY, version, **fields)
    return [
        get_error(partition.error_code) for topic in reply.topics for partition in topic.partitions
    ]


def kept(harness: ApiHarness) -> CommitInTransaction:
    (request,) = harness.groups.requests
    assert isinstance(request, CommitInTransaction)
    return request


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_verified_and_committed_in_every_version(
    harness: ApiHarness, version: int
) -> None:
    assert commit(harness, version) == [NONE, NONE]
    (verified,) = harness.verifier.requests
    assert verified[:4] == ("mine", 5, 1, (OFFSETS,))
    assert verified.adds is (version >= 5)
    request = kept(harness)
    assert (request.producer_id, request.producer_epoch) == (5, 1)
    epoch = 4 if version >= 2 else -1
    has_member = version >= 3
    assert request.commit == CommitOffsets(
        group="g",
        member="m" if has_member else "",
        instance="i" if has_member else None,
        generation=3 if has_member else -1,
        offsets=(OffsetCommit(P1, 11, epoch, "note"), OffsetCommit(P0, 10, epoch, "")),
    )


RETRY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("said", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, RETRY),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, RETRY),
        (ErrorCode.NETWORK_EXCEPTION, 5, RETRY),
        (ErrorCode.NOT_COORDINATOR, 3, RETRY),
    ],
)
def test_errors_of_the_transaction_coordinator_are_mapped_by_version(
    harness: ApiHarness, said: ErrorCode, version: int, expected: ErrorCode
) -> None:
    harness.verifier.codes[OFFSETS] = said
    assert commit(harness, version) == [expected, expected]


def test_a_verification_is_valid_only_in_its_leadership(
    harness: ApiHarness,
) -> None:
    commit(harness, 5)
    harness.make_topic(OFFSETS_TOPIC, 3, epoch=1)  # a new epoch of the same leadership
    assert kept(harness).find_refusal() is NONE
    harness.make_topic(OFFSETS_TOPIC, 3, epoch=2, replicas=(ME, OTHER), leader=OTHER)
    harness.make_topic(OFFSETS_TOPIC, 3, epoch=3)
    assert kept(harness).find_refusal() is ErrorCode.NOT_COORDINATOR


def test_a_groups_partition_led_elsewhere_gets_not_coordinator(harness: ApiHarness) -> None:
    harness.groups.partition = 7
    harness.groups.code = ErrorCode.NOT_COORDINATOR
    assert commit(harness, 5) == [ErrorCode.NOT_COORDINATOR] * 2
    assert harness.verifier.requests == []


def test_unreadable_and_missing_topics_are_rejected_individually(
    harness: ApiHarness,
) -> None:
    harness.make_topic("secret", 1)
    harness.guard.deny(AclOperation.READ, ResourceType.TOPIC, "secret")
    topics = [
        {"name": "secret", "partitions": [entry(0, 1)]},
        {"name": "orders", "partitions": [entry(9, 1), entry(0, 1)]},
        {"name": "absent", "partitions": [entry(0, 1)]},
    ]
    assert commit(harness, 5, topics=topics) == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [offset.tp for offset in kept(harness).commit.offsets] == [P0]


def test_without_an_accepted_offset_nothing_is_verified(harness: ApiHarness) -> None:
    topics = [{"name": "absent", "partitions": [entry(0, 1)]}]
    assert commit(harness, 5, topics=topics) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.groups.requests == harness.verifier.requests == []


@pytest.mark.parametrize(
    ("operation", "resource", "name", "code"),
    [
        (
            AclOperation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            "mine",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (AclOperation.READ, ResourceType.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_it_requires_the_transactional_id_and_the_group(
    harness: ApiHarness, operation: AclOperation, resource: ResourceType, name: str, code: ErrorCode
) -> None:
    harness.guard.deny(operation, resource, name)
    assert commit(harness, 5) == [code, code]
    assert harness.groups.requests == harness.verifier.requests == []


def test_a_missing_producer_is_rejected(harness: ApiHarness) -> None:
    assert commit(harness, 5, producer_id=-1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert harness.verifier.requests == []
