"""DeleteTopics, by name and by id."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, rows, topic_id_of, topic_state

from penstock.apis.admin.delete_topics import API
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import AclOperation, ResourceType

LAST = API.versions[-1]


@pytest.fixture
def harness(harness: AdminApiHarness) -> AdminApiHarness:
    for name in ("a", "b", "c"):
        harness.update(topic_state(name))
    return harness


def by_name(name: str) -> dict[str, Any]:
    return {"name": name, "topic_id": None}


def by_id(topic_id: UUID) -> dict[str, Any]:
    return {"name": None, "topic_id": topic_id}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_topics_are_deleted_by_name(harness: AdminApiHarness, version: int) -> None:
    harness.controller.refusals["b"] = ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no b"
    )
    answer = harness.ask(
        API, version, topic_names=["c", "b", "a"], timeout=timedelta(milliseconds=77)
    )
    assert rows(answer.responses, "name", "error_code") == [
        ("c", ErrorCode.NONE),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
    ]
    if version >= 5:
        assert rows(answer.responses, "error_message") == [None, "there is no b", None]
    assert harness.controller.deleted == ["c", "b", "a"]
    assert harness.controller.timeout_ms == 77


def test_version_6_accepts_names_and_ids(harness: AdminApiHarness) -> None:
    answer = harness.ask(API, 6, topics=[by_id(topic_id_of("b")), by_name("a")])
    assert rows(answer.responses, "name", "topic_id", "error_code") == [
        ("b", topic_id_of("b"), ErrorCode.NONE),
        ("a", topic_id_of("a"), ErrorCode.NONE),
    ]
    assert harness.controller.deleted == ["b", "a"]


def test_an_unknown_id_is_refused(harness: AdminApiHarness) -> None:
    lost = UUID(int=99)
    answer = harness.ask(API, 6, topics=[by_id(lost)])
    assert rows(answer.responses, "name", "topic_id", "error_code") == [
        (None, lost, ErrorCode.UNKNOWN_TOPIC_ID)
    ]
    assert not harness.controller.deleted


@pytest.mark.parametrize(
    "entry",
    [{"name": None, "topic_id": None}, {"name": "a", "topic_id": topic_id_of("a")}],
)
def test_a_topic_is_named_in_exactly_one_way(
    harness: AdminApiHarness, entry: dict[str, Any]
) -> None:
    answer = harness.ask(API, 6, topics=[entry])
    assert rows(answer.responses, "error_code") == [ErrorCode.INVALID_REQUEST]
    assert not harness.controller.deleted


def test_a_name_given_twice_is_refused_and_not_deleted(harness: AdminApiHarness) -> None:
    answer = harness.ask(API, 5, topic_names=["a", "b", "a", "a"])
    assert rows(answer.responses, "name", "error_code") == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert harness.controller.deleted == ["b"]


def test_an_id_given_twice_is_refused_and_not_deleted(harness: AdminApiHarness) -> None:
    answer = harness.ask(API, 6, topics=[by_id(topic_id_of("a"))] * 2)
    assert rows(answer.responses, "error_code") == [ErrorCode.INVALID_REQUEST]
    assert not harness.controller.deleted


def test_a_topic_named_by_name_and_by_id_is_refused_twice(harness: AdminApiHarness) -> None:
    answer = harness.ask(API, 6, topics=[by_name("a"), by_id(topic_id_of("a")), by_name("b")])
    assert rows(answer.responses, "name", "error_code") == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert harness.controller.deleted == ["b"]


@pytest.mark.parametrize("version", [1, 5])
def test_deletion_needs_permission(harness: AdminApiHarness, version: int) -> None:
    harness.acl.forbid(AclOperation.DELETE, ResourceType.CLUSTER, "kafka-cluster")
    harness.acl.forbid(AclOperation.DELETE, ResourceType.TOPIC, "a")
    answer = harness.ask(API, version, topic_names=["a", "b"])
    assert rows(answer.responses, "name", "error_code") == [
        ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("b", ErrorCode.NONE),
    ]
    assert harness.controller.deleted == ["b"]


def test_a_missing_topic_looks_forbidden_without_delete_permission(
    harness: AdminApiHarness,
) -> None:
    harness.acl.forbid(AclOperation.DELETE, ResourceType.CLUSTER, "kafka-cluster")
    harness.acl.forbid(AclOperation.DELETE, ResourceType.TOPIC, "nowhere")
    (result,) = harness.ask(API, 6, topics=[by_name("nowhere")]).responses
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert result.topic_id is None


def test_an_id_does_not_reveal_the_name_without_describe(
    harness: AdminApiHarness,
) -> None:
    harness.acl.forbid(AclOperation.DELETE, ResourceType.CLUSTER, "kafka-cluster")
    harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.TOPIC, "a")
    (result,) = harness.ask(API, 6, topics=[by_id(topic_id_of("a"))]).responses
    assert (result.name, result.topic_id) == (None, topic_id_of("a"))
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "'a'" not in result.error_message


def test_with_describe_but_without_delete_the_name_is_returned(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.DELETE, ResourceType.CLUSTER, "kafka-cluster")
    harness.acl.forbid(AclOperation.DELETE, ResourceType.TOPIC, "a")
    (result,) = harness.ask(API, 6, topics=[by_id(topic_id_of("a"))]).responses
    assert (result.name, result.error_code) == ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_delete_on_the_cluster_allows_every_topic(harness: AdminApiHarness) -> None:
    harness.acl.forbid(AclOperation.DELETE, ResourceType.TOPIC, "a")
    harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.TOPIC, "a")
    (result,) = harness.ask(API, 6, topics=[by_id(topic_id_of("a"))]).responses
    assert (result.name, result.error_code) == ("a", ErrorCode.NONE)
    assert harness.controller.deleted == ["a"]


class TestDeletionDisabled:
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[AdminApiHarness]:
        made = AdminApiHarness(
            log_dirs=(tmp_path / "logs",), given={"delete.topic.enable": "false"}
        )
        made.update(topic_state("a"))
        yield made
        made.close()

    @pytest.mark.parametrize(
        ("version", "code"),
        [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
    )
    def test_no_topic_is_deleted(
        self, harness: AdminApiHarness, version: int, code: ErrorCode
    ) -> None:
        answer = harness.ask(API, version, topic_names=["a"])
        assert rows(answer.responses, "error_code") == [code]
        assert not harness.controller.deleted
