"""DeleteRecords on real logs."""

from typing import Any

import pytest
from tests.unit.apis.admin.harness import OTHER_ID, OWN_ID, AdminApiHarness, rows, topic_state

from penstock.apis.data.delete_records import API
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.security.authorizer import AclOperation, ResourceType

LAST = API.versions[-1]
EVERYTHING = -1


def delete(
    harness: AdminApiHarness, topic: str, *offsets: tuple[int, int], version: int = LAST
) -> list[Any]:
    """Return (partition, new log start offset, error) of each partition."""
    partitions = [{"partition_index": partition, "offset": offset} for partition, offset in offsets]
    answer = harness.ask(API, version, topics=[{"name": topic, "partitions": partitions}])
    (returned,) = answer.topics
    assert returned.name == topic
    return rows(returned.partitions, "partition_index", "low_watermark", "error_code")


@pytest.fixture
def harness(harness: AdminApiHarness) -> AdminApiHarness:
    harness.serve(topic_state("orders", replicas=[(OWN_ID,), (OWN_ID,)]))
    harness.write(TopicPartition("orders", 0), 10)
    harness.write(TopicPartition("orders", 1), 3)
    return harness


@pytest.mark.parametrize("version", API.versions)
def test_records_below_the_offset_are_deleted(harness: AdminApiHarness, version: int) -> None:
    assert delete(harness, "orders", (0, 4), version=version) == [(0, 4, ErrorCode.NONE)]
    assert harness.replicas.get(TopicPartition("orders", 0)).log_start_offset == 4


def test_minus_one_deletes_up_to_the_high_watermark(harness: AdminApiHarness) -> None:
    assert delete(harness, "orders", (0, EVERYTHING), (1, EVERYTHING)) == [
        (0, 10, ErrorCode.NONE),
        (1, 3, ErrorCode.NONE),
    ]


def test_the_start_never_moves_back(harness: AdminApiHarness) -> None:
    delete(harness, "orders", (0, 6))
    assert delete(harness, "orders", (0, 2)) == [(0, 6, ErrorCode.NONE)]


@pytest.mark.parametrize("offset", [-2, 11, -(2**63), 2**63 - 1])
def test_an_offset_outside_the_log_changes_nothing(harness: AdminApiHarness, offset: int) -> None:
    assert delete(harness, "orders", (0, offset)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert harness.replicas.get(TopicPartition("orders", 0)).log_start_offset == 0


def test_each_partition_has_its_own_result(harness: AdminApiHarness) -> None:
    assert delete(harness, "orders", (1, 1), (7, 0), (0, 99)) == [
        (1, 1, ErrorCode.NONE),
        (7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]


def test_only_the_leader_deletes_records(harness: AdminApiHarness) -> None:
    harness.serve(topic_state("elsewhere", replicas=[(OTHER_ID, OWN_ID), (OTHER_ID,)]))
    assert delete(harness, "elsewhere", (0, 0), (1, 0)) == [
        (0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


def test_a_topic_that_is_only_compacted_keeps_its_records(harness: AdminApiHarness) -> None:
    harness.serve(topic_state("state", configs={"cleanup.policy": "compact"}))
    assert delete(harness, "state", (0, 0)) == [(0, -1, ErrorCode.POLICY_VIOLATION)]


def test_internal_topics_keep_their_records(harness: AdminApiHarness) -> None:
    harness.serve(topic_state("__consumer_offsets"))
    assert delete(harness, "__consumer_offsets", (0, 0)) == [
        (0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    ]


def test_deletion_needs_permission_whether_or_not_the_topic_exists(
    harness: AdminApiHarness,
) -> None:
    for topic in ("orders", "nowhere"):
        harness.acl.forbid(AclOperation.DELETE, ResourceType.TOPIC, topic)
        assert delete(harness, topic, (0, EVERYTHING)) == [
            (0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ]
    assert harness.replicas.get(TopicPartition("orders", 0)).log_start_offset == 0


def test_a_topic_named_twice_is_returned_once(harness: AdminApiHarness) -> None:
    entries = [
        {"name": "orders", "partitions": [{"partition_index": number, "offset": 1}]}
        for number in (0, 1)
    ]
    answer = harness.ask(API, LAST, topics=entries)
    (returned,) = answer.topics
    assert rows(returned.partitions, "partition_index", "low_watermark") == [(0, 1), (1, 1)]
