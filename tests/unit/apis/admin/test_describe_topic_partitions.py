"""DescribeTopicPartitions: topics in pages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.admin.harness import (
    OTHER_ID,
    OWN_ID,
    AdminApiHarness,
    node,
    rows,
    topic_id_of,
    topic_state,
)

from penstock.apis.cluster.describe_topic_partitions import API
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.security.authorizer import AclOperation, ResourceType

MANY = 2000


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def ask(
    harness: AdminApiHarness, *names: str, limit: int = MANY, cursor: tuple[str, int] | None = None
) -> Any:
    position = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return harness.ask(
        API, 0, topics=named(*names), response_partition_limit=limit, cursor=position
    )


def returned(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, rows(topic.partitions, "partition_index")) for topic in answer.topics]


def next_place(answer: Any) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def harness(harness: AdminApiHarness) -> AdminApiHarness:
    harness.update(topic_state("c"))
    harness.update(topic_state("a", replicas=[(OWN_ID,)] * 3))
    harness.update(topic_state("b", replicas=[(OWN_ID,)] * 2))
    return harness


def test_all_topics_are_sorted_by_name(harness: AdminApiHarness) -> None:
    answer = ask(harness)
    assert returned(answer) == [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]
    assert next_place(answer) is None


def test_a_topic_has_its_leader_and_replicas(harness: AdminApiHarness) -> None:
    lost = BrokerId(3)
    harness.update(brokers=(node(OWN_ID), node(OTHER_ID)))
    harness.update(topic_state("d", replicas=[(OTHER_ID, OWN_ID, lost), (lost, OWN_ID)]))
    (topic,) = ask(harness, "d").topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.NONE, topic_id_of("d"))
    assert topic.is_internal is False
    fields = ("leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas")
    assert rows(topic.partitions, *fields) == [
        (OTHER_ID, 0, (OTHER_ID, OWN_ID, lost), (OTHER_ID, OWN_ID, lost), (lost,)),
        (-1, 0, (lost, OWN_ID), (lost, OWN_ID), (lost,)),
    ]
    harness.update(failed={TopicPartition("d", 1): frozenset((OWN_ID,))})
    (topic,) = ask(harness, "d").topics
    assert rows(topic.partitions, "offline_replicas") == [(lost,), (lost, OWN_ID)]
    # Java's client iterates over these without a null check.
    assert rows(topic.partitions, "eligible_leader_replicas", "last_known_elr") == [((), ())] * 2


def test_internal_topics_are_marked(harness: AdminApiHarness) -> None:
    harness.update(topic_state("__consumer_offsets"))
    assert rows(ask(harness, "__consumer_offsets").topics, "is_internal") == [True]


def test_absent_topics_are_returned_with_an_error(harness: AdminApiHarness) -> None:
    answer = ask(harness, "nowhere", "a", "no/where", "a")
    assert rows(answer.topics, "name", "error_code") == [
        ("a", ErrorCode.NONE),
        ("no/where", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_all_pages_return_every_partition_once(harness: AdminApiHarness, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    answer = ask(harness, limit=limit)
    while True:
        page = [(name, number) for name, numbers in returned(answer) for number in numbers]
        assert 0 < len(page) <= limit
        seen += page
        cursor = next_place(answer)
        if cursor is None:
            break
        answer = ask(harness, limit=limit, cursor=cursor)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


def test_a_page_that_ends_with_a_topic_points_at_the_next(harness: AdminApiHarness) -> None:
    assert next_place(ask(harness, limit=3)) == ("b", 0)


def test_a_page_that_ends_within_a_topic_points_into_it(harness: AdminApiHarness) -> None:
    assert next_place(ask(harness, limit=4)) == ("b", 1)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(harness: AdminApiHarness, limit: int) -> None:
    assert returned(ask(harness, limit=limit)) == [("a", [0])]


def test_a_cursor_at_a_deleted_topic_continues_with_the_next(harness: AdminApiHarness) -> None:
    assert returned(ask(harness, cursor=("bb", 7))) == [("c", [0])]


def test_a_cursor_beyond_the_last_partition_returns_no_partitions(harness: AdminApiHarness) -> None:
    assert returned(ask(harness, "a", "b", cursor=("a", 99))) == [("a", []), ("b", [0, 1])]


@pytest.mark.parametrize("cursor", [("c", 0), ("a", -1)])
def test_a_cursor_must_point_at_a_requested_topic(
    harness: AdminApiHarness, cursor: tuple[str, int]
) -> None:
    answer = ask(harness, "a", "b", cursor=cursor)
    assert set(rows(answer.topics, "error_code")) == {ErrorCode.INVALID_REQUEST}


def test_topics_that_may_not_be_described_are_left_out_of_all_topics(
    harness: AdminApiHarness,
) -> None:
    harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.TOPIC, "b")
    assert returned(ask(harness)) == [("a", [0, 1, 2]), ("c", [0])]


def test_a_topic_that_may_not_be_described_looks_the_same_whether_or_not_it_exists(
    harness: AdminApiHarness,
) -> None:
    for name in ("b", "nowhere"):
        harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        (topic,) = ask(harness, name).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (topic.topic_id, topic.partitions) == (None, ())


def test_topic_operations_are_returned_as_bits(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.ALTER, ResourceType.TOPIC, "c")
    (topic,) = ask(harness, "c").topics
    bits = topic.topic_authorized_operations
    assert bits & (1 << AclOperation.READ)
    assert not bits & (1 << AclOperation.ALTER)


class TestBrokersLimit:
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[AdminApiHarness]:
        given = {"max.request.partition.size.limit": "2"}
        made = AdminApiHarness(log_dirs=(tmp_path / "logs",), given=given)
        made.update(topic_state("a", replicas=[(OWN_ID,)] * 3))
        yield made
        made.close()

    def test_the_brokers_page_limit_applies_too(self, harness: AdminApiHarness) -> None:
        answer = ask(harness)
        assert (returned(answer), next_place(answer)) == ([("a", [0, 1])], ("a", 2))
