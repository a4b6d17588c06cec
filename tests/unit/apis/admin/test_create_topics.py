"""CreateTopics, in every version that is served."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.admin.harness import (
    OTHER_ID,
    OWN_ID,
    AdminApiHarness,
    rows,
    topic_id_of,
)

from penstock.apis.admin.create_topics import API
from penstock.config.registry import TOPIC_SETTINGS
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

LAST = API.versions[-1]


def requested_topic(name: str, **given: Any) -> dict[str, Any]:
    defaults = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    return {"name": name, **defaults, **given}


@pytest.mark.parametrize("version", API.versions)
def test_a_topic_is_created_as_requested(harness: AdminApiHarness, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "5000"}]
    answer = harness.ask(
        API,
        version,
        topics=[requested_topic("a", configs=configs)],
        timeout=timedelta(milliseconds=1234),
    )
    assert rows(answer.topics, "name", "error_code", "error_message") == [
        ("a", ErrorCode.NONE, None)
    ]
    (created,) = harness.controller.created
    assert (created.name, created.partitions, created.replication_factor) == ("a", 2, 1)
    assert created.configs == {"retention.ms": "5000"}
    assert harness.controller.timeout_ms == 1234
    assert harness.controller.validate_only is False


@pytest.mark.parametrize("version", API.versions)
def test_a_refusal_has_a_message(harness: AdminApiHarness, version: int) -> None:
    harness.controller.refusals["b"] = ApiError(
        ErrorCode.TOPIC_ALREADY_EXISTS, "b is there already"
    )
    answer = harness.ask(
        API, version, topics=[requested_topic("a"), requested_topic("b"), requested_topic("c")]
    )
    assert rows(answer.topics, "name", "error_code", "error_message") == [
        ("a", ErrorCode.NONE, None),
        ("b", ErrorCode.TOPIC_ALREADY_EXISTS, "b is there already"),
        ("c", ErrorCode.NONE, None),
    ]


@pytest.mark.parametrize("version", [5, 6, 7])
def test_partitions_and_settings_are_returned_from_version_5_on(
    harness: AdminApiHarness, version: int
) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    answer = harness.ask(
        API, version, topics=[requested_topic("a", num_partitions=3, configs=configs)]
    )
    (topic,) = answer.topics
    assert (topic.num_partitions, topic.replication_factor) == (3, 1)
    assert topic.topic_config_error_code == 0
    returned = {config.name: config for config in topic.configs}
    assert returned.keys() == TOPIC_SETTINGS.keys()
    assert (returned["cleanup.policy"].value, returned["cleanup.policy"].config_source) == (
        "compact",
        1,
    )
    assert (returned["retention.ms"].value, returned["retention.ms"].config_source) == (
        "604800000",
        5,
    )
    assert not any(config.is_sensitive or config.read_only for config in topic.configs)


def test_the_topic_id_is_returned_in_version_7(harness: AdminApiHarness) -> None:
    (topic,) = harness.ask(API, 7, topics=[requested_topic("a")]).topics
    assert topic.topic_id == topic_id_of("a")


def test_a_validated_topic_has_no_id(harness: AdminApiHarness) -> None:
    (topic,) = harness.ask(API, 7, topics=[requested_topic("a")], validate_only=True).topics
    assert (topic.error_code, topic.topic_id, topic.num_partitions) == (ErrorCode.NONE, None, 2)
    assert harness.controller.validate_only is True


def test_a_refused_topic_has_neither_partitions_nor_settings(harness: AdminApiHarness) -> None:
    harness.controller.refusals["a"] = ApiError(ErrorCode.INVALID_PARTITIONS, "no")
    (topic,) = harness.ask(API, LAST, topics=[requested_topic("a")]).topics
    assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())


def test_a_name_given_twice_is_refused_once_and_not_created(harness: AdminApiHarness) -> None:
    answer = harness.ask(
        API,
        LAST,
        topics=[requested_topic("a"), requested_topic("b"), requested_topic("a", num_partitions=9)],
    )
    assert rows(answer.topics, "name", "error_code") == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert rows(harness.controller.created, "name") == ["b"]


def test_create_on_the_cluster_is_enough(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.CREATE, ResourceType.TOPIC, "a")
    assert rows(harness.ask(API, LAST, topics=[requested_topic("a")]).topics, "error_code") == [
        ErrorCode.NONE
    ]


def test_create_on_the_topic_is_enough(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    harness.acl.forbid(AclOperation.CREATE, ResourceType.TOPIC, "b")
    answer = harness.ask(API, LAST, topics=[requested_topic("a"), requested_topic("b")])
    assert rows(answer.topics, "name", "error_code") == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert rows(harness.controller.created, "name") == ["a"]


def test_settings_need_describe_configs(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a")
    (topic,) = harness.ask(API, LAST, topics=[requested_topic("a")]).topics
    assert topic.error_code == ErrorCode.NONE
    assert topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())


def test_settings_valid_only_on_the_controller_are_not_returned(harness: AdminApiHarness) -> None:
    configs = [{"name": "retention.ms", "value": "of a broker with other rules"}]
    (topic,) = harness.ask(API, LAST, topics=[requested_topic("a", configs=configs)]).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.NONE, topic_id_of("a"))
    assert (topic.topic_config_error_code, topic.configs) == (ErrorCode.INVALID_CONFIG, ())


def test_an_assignment_places_partitions_on_brokers(harness: AdminApiHarness) -> None:
    assignments = [
        {"partition_index": 1, "broker_ids": [2]},
        {"partition_index": 0, "broker_ids": [1]},
    ]
    topic = requested_topic("a", num_partitions=-1, replication_factor=-1, assignments=assignments)
    assert rows(harness.ask(API, 2, topics=[topic]).topics, "error_code") == [ErrorCode.NONE]
    (created,) = harness.controller.created
    assert created.assignment == {0: (OWN_ID,), 1: (OTHER_ID,)}


@pytest.mark.parametrize("counts", [(1, -1), (-1, 1)])
def test_an_assignment_excludes_counts(harness: AdminApiHarness, counts: tuple[int, int]) -> None:
    partitions, replicas = counts
    topic = requested_topic(
        "a",
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[{"partition_index": 0, "broker_ids": [1]}],
    )
    answer = harness.ask(API, LAST, topics=[topic])
    assert rows(answer.topics, "error_code") == [ErrorCode.INVALID_REQUEST]
    assert not harness.controller.created


def test_a_partition_is_assigned_once(harness: AdminApiHarness) -> None:
    twice = [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [2]}]
    topic = requested_topic("a", num_partitions=-1, replication_factor=-1, assignments=twice)
    answer = harness.ask(API, LAST, topics=[topic])
    assert rows(answer.topics, "error_code") == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_the_kraft_metadata_topic_cannot_be_created(harness: AdminApiHarness) -> None:
    answer = harness.ask(API, LAST, topics=[requested_topic("__cluster_metadata")])
    assert rows(answer.topics, "error_code") == [ErrorCode.INVALID_REQUEST]


def test_an_empty_request_has_an_empty_response(harness: AdminApiHarness) -> None:
    assert harness.ask(API, LAST, topics=[]).topics == ()


def test_a_request_for_too_many_partitions_is_refused_as_a_whole(harness: AdminApiHarness) -> None:
    """The request is refused before any partition is built: each would cost time."""
    topics = [
        requested_topic("a", num_partitions=6_000),
        requested_topic("b", num_partitions=4_001),
        requested_topic("c/d"),
    ]
    answer = harness.ask(API, LAST, topics=topics)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert "send several requests" in answer.topics[0].error_message
    assert harness.controller.created == []


def test_the_maximum_of_partitions_may_be_requested(harness: AdminApiHarness) -> None:
    topics = [requested_topic("a", num_partitions=9_999), requested_topic("b", num_partitions=1)]
    harness.ask(API, LAST, topics=topics)
    assert [topic.name for topic in harness.controller.created] == ["a", "b"]
