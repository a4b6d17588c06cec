"""OffsetCommit, OffsetFetch and OffsetDelete: every version, decoded and encoded."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import NOW_MS, ApiHarness, topic_id_of

from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import (
    CommitOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetCommit,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

COMMIT, FETCH, DELETE = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE
BY_NAME = range(10)
BY_ID = 10
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
UNKNOWN_ID = topic_id_of("nobody")


@pytest.fixture(name="topics", autouse=True)
def _topics(harness: ApiHarness) -> None:
    harness.make_topic("orders", 3)
    harness.make_topic("secret", 1)
    harness.guard.deny(AclOperation.READ, ResourceType.TOPIC, "secret")
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "secret")


def test_all_advertised_versions_are_served() -> None:
    """aiokafka uses none later than 3, Java no OffsetCommit before 2, no OffsetFetch before 1."""
    assert APIS[COMMIT].versions == range(2, 11)
    assert APIS[FETCH].versions == range(1, 11)
    assert APIS[DELETE].versions == range(1)


def topic(name: str, **fields: Any) -> dict[str, Any]:
    """A topic with name and id; each version encodes the field that it has."""
    return {"name": name, "topic_id": topic_id_of(name), **fields}


# -- OffsetCommit --------------------------------------------------------------------------


def entry(index: int, offset: int, metadata: str | None = None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 4,
        "committed_metadata": metadata,
    }


def ask_to_commit(harness: ApiHarness, version: int, *topics: dict[str, Any], **values: Any) -> Any:
    return harness.ask(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=7,
        member_id="m-1",
        group_instance_id="static-1",
        topics=topics or [topic("orders", partitions=[entry(0, 50, "note"), entry(1, 0)])],
        **values,
    )


def codes_of(reply: Any) -> list[tuple[int, int]]:
    return [
        (partition.partition_index, partition.error_code)
        for topic in reply.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", APIS[COMMIT].versions)
def test_a_commit_is_decoded_in_every_version(harness: ApiHarness, version: int) -> None:
    harness.groups.refused = {P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    reply = ask_to_commit(harness, version)
    epoch = 4 if version >= 6 else -1
    topic_id = topic_id_of("orders") if version == BY_ID else None
    assert harness.groups.requests == [
        CommitOffsets(
            group="g",
            member="m-1",
            instance="static-1" if version >= 7 else None,
            generation=7,
            offsets=(
                OffsetCommit(P0, 50, epoch, "note", topic_id),
                OffsetCommit(P1, 0, epoch, "", topic_id),
            ),
            is_consumer_protocol=version >= 9,
        )
    ]
    assert codes_of(reply) == [(0, 0), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
    if version == BY_ID:
        assert [topic.topic_id for topic in reply.topics] == [topic_id_of("orders")]
    else:
        assert [topic.name for topic in reply.topics] == ["orders"]


@pytest.mark.parametrize(
    ("retention", "expires_ms"),
    [
        (timedelta(milliseconds=-1), None),
        (timedelta(milliseconds=-7), None),
        (timedelta(), NOW_MS),
        (timedelta(hours=1), NOW_MS + 3_600_000),
    ],
)
@pytest.mark.parametrize("version", range(2, 5))
def test_old_versions_may_set_a_retention(
    harness: ApiHarness, version: int, retention: timedelta, expires_ms: int | None
) -> None:
    ask_to_commit(harness, version, retention_time=retention)
    (request,) = harness.groups.requests
    assert isinstance(request, CommitOffsets)
    assert [offset.expires_ms for offset in request.offsets] == [expires_ms] * 2


@pytest.mark.parametrize("version", APIS[COMMIT].versions)
def test_each_partition_of_a_commit_has_its_own_code_in_order(
    harness: ApiHarness, version: int
) -> None:
    reply = ask_to_commit(
        harness,
        version,
        topic("absent", partitions=[entry(0, 1)]),
        topic("orders", partitions=[entry(9, 1), entry(0, 1), entry(-1, 1)]),
        topic("secret", partitions=[entry(0, 1), entry(1, 1)]),
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes_of(reply) == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID if version == BY_ID else unknown),
        (9, unknown),
        (0, 0),
        (-1, unknown),
        (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    (request,) = harness.groups.requests
    assert isinstance(request, CommitOffsets)
    assert [offset.tp for offset in request.offsets] == [P0]


@pytest.mark.parametrize("version", APIS[COMMIT].versions)
def test_a_commit_with_only_refused_partitions_does_not_reach_the_group(
    harness: ApiHarness, version: int
) -> None:
    ask_to_commit(harness, version, topic("secret", partitions=[entry(0, 1)]))
    assert harness.groups.requests == []


def test_the_later_of_two_offsets_for_a_partition_counts(harness: ApiHarness) -> None:
    first = topic("orders", partitions=[entry(0, 1), entry(0, 2)])
    reply = ask_to_commit(harness, 8, first, topic("orders", partitions=[entry(0, 3)]))
    (request,) = harness.groups.requests
    assert isinstance(request, CommitOffsets)
    assert [(offset.tp, offset.offset) for offset in request.offsets] == [(P0, 3)]
    assert codes_of(reply) == [(0, 0)] * 3


@pytest.mark.parametrize("topic_id", [None, UNKNOWN_ID])
def test_an_unknown_topic_id_gets_unknown_topic_id(
    harness: ApiHarness, topic_id: TopicId | None
) -> None:
    reply = ask_to_commit(harness, BY_ID, {"topic_id": topic_id, "partitions": [entry(0, 1)]})
    assert codes_of(reply) == [(0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert reply.topics[0].topic_id == topic_id


# -- OffsetFetch ---------------------------------------------------------------------------


def fetch(harness: ApiHarness, version: int, topics: Any, **values: Any) -> Any:
    """Return the response for one group, at top level or in `groups` by version."""
    group = {"group_id": "g", "member_id": "m-1", "member_epoch": 3, "topics": topics}
    if version >= 8:
        (answer,) = harness.ask(FETCH, version, groups=[group], **values).groups
        assert answer.group_id == "g"
        return answer
    return harness.ask(FETCH, version, group_id="g", topics=topics, **values)


def offsets(answer: Any) -> list[tuple[int, int, str, int]]:
    return [
        (
            partition.partition_index,
            partition.committed_offset,
            partition.metadata,
            partition.error_code,
        )
        for topic in answer.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", APIS[FETCH].versions)
def test_a_fetch_is_decoded_and_its_offsets_encoded(harness: ApiHarness, version: int) -> None:
    harness.groups.offsets = {P0: FetchedOffset(P0, 50, 4, "note")}
    topics = [topic("orders", partition_indexes=[1, 0])]
    answer = fetch(harness, version, topics, require_stable=True)
    assert harness.groups.requests == [
        FetchOffsets(
            group="g",
            member="m-1" if version >= 9 else None,
            member_epoch=3 if version >= 9 else -1,
            partitions=(P1, P0),
            require_stable=version >= 7,
        )
    ]
    assert offsets(answer) == [(1, -1, "", 0), (0, 50, "note", 0)]
    if version >= 5:
        epochs = [partition.committed_leader_epoch for partition in answer.topics[0].partitions]
        assert epochs == [-1, 4]
    if version >= 2:
        assert answer.error_code == 0
    if version == BY_ID:
        assert answer.topics[0].topic_id == topic_id_of("orders")
    else:
        assert answer.topics[0].name == "orders"


@pytest.mark.parametrize("version", APIS[FETCH].versions)
def test_offsets_of_topics_that_may_not_be_described_are_refused(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.offsets = {P0: FetchedOffset(P0, 50, 4, "note")}
    topics = [
        topic("secret", partition_indexes=[0]),
        topic("orders", partition_indexes=[0]),
    ]
    assert offsets(fetch(harness, version, topics)) == [
        (0, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, 50, "note", 0),
    ]
    (request,) = harness.groups.requests
    assert isinstance(request, FetchOffsets)
    assert request.partitions == (P0,)


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_fetch_all_that_may_be_described(harness: ApiHarness, version: int) -> None:
    hidden, gone = TopicPartition("secret", 0), TopicPartition("gone", 0)
    harness.groups.offsets = {
        tp: FetchedOffset(tp, number, -1, "") for number, tp in enumerate((P1, hidden, gone, P0))
    }
    answer = fetch(harness, version, None)
    (request,) = harness.groups.requests
    assert isinstance(request, FetchOffsets)
    assert request.partitions is None
    expected = [(1, 0, "", 0), (0, 3, "", 0)]
    if version < BY_ID:  # a deleted topic has no id
        expected.append((0, 2, "", 0))
    assert offsets(answer) == expected


@pytest.mark.parametrize("version", APIS[FETCH].versions)
def test_the_group_error_is_top_level_or_per_partition_by_version(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.code = ErrorCode.NOT_COORDINATOR
    answer = fetch(harness, version, [topic("orders", partition_indexes=[0, 1])])
    if version >= 2:
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, ())
    else:
        refused = [(index, -1, "", ErrorCode.NOT_COORDINATOR) for index in (0, 1)]
        assert offsets(answer) == refused


@pytest.mark.parametrize("version", range(7, 11))
def test_offsets_of_an_open_transaction_are_unstable(harness: ApiHarness, version: int) -> None:
    harness.groups.unstable = frozenset((P1,))
    answer = fetch(harness, version, [topic("orders", partition_indexes=[0, 1])])
    assert offsets(answer) == [
        (0, -1, "", 0),
        (1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_are_fetched_each_once(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "theirs")
    groups = [{"group_id": name, "topics": None} for name in ("a", "theirs", "b", "a")]
    reply = harness.ask(FETCH, version, groups=groups)
    assert [(group.group_id, group.error_code) for group in reply.groups] == [
        ("a", 0),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("b", 0),
    ]
    assert len(harness.groups.requests) == 2


def test_a_fetch_for_no_group_is_empty(harness: ApiHarness) -> None:
    assert harness.ask(FETCH, 8, groups=[]).groups == ()


def test_an_unknown_topic_id_has_no_offsets(harness: ApiHarness) -> None:
    topics = [{"topic_id": UNKNOWN_ID, "partition_indexes": [0]}]
    answer = fetch(harness, BY_ID, topics)
    assert offsets(answer) == [(0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]
    assert answer.topics[0].topic_id == UNKNOWN_ID


# -- OffsetDelete --------------------------------------------------------------------------


def ask_to_delete(harness: ApiHarness, topics: dict[str, list[int]]) -> Any:
    return harness.ask(
        DELETE,
        0,
        group_id="g",
        topics=[
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in topics.items()
        ],
    )


def test_each_partition_of_a_deletion_has_its_own_code_in_order(harness: ApiHarness) -> None:
    harness.groups.refused = {P1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    reply = ask_to_delete(harness, {"secret": [0], "absent": [0], "orders": [1, 7, 0]})
    assert harness.groups.requests == [("g", (P1, P0))]
    assert reply.error_code == 0
    assert [topic.name for topic in reply.topics] == ["secret", "absent", "orders"]
    assert codes_of(reply) == [
        (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0),
    ]


def test_a_missing_group_is_a_top_level_error(harness: ApiHarness) -> None:
    harness.groups.code = ErrorCode.GROUP_ID_NOT_FOUND
    reply = ask_to_delete(harness, {"secret": [0], "orders": [0]})
    assert (reply.error_code, reply.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


def test_deleting_offsets_requires_delete_on_the_group(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.DELETE, ResourceType.GROUP, "g")
    reply = ask_to_delete(harness, {"orders": [0]})
    assert (reply.error_code, reply.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    assert harness.groups.requests == []
