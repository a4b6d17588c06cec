"""CreatePartitions: one result per topic."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.admin.harness import (
    OTHER_ID,
    OWN_ID,
    AdminApiHarness,
    rows,
    topic_state,
)

from penstock.apis.admin.create_partitions import API
from penstock.controller.interface import ApiError, NewPartitions
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import AclOperation, ResourceType

LAST = API.versions[-1]


def more(name: str, count: int, assignments: Any = None) -> dict[str, Any]:
    return {"name": name, "count": count, "assignments": assignments}


@pytest.mark.parametrize("version", API.versions)
def test_each_topic_has_its_own_result(harness: AdminApiHarness, version: int) -> None:
    harness.controller.refusals["b"] = ApiError(ErrorCode.INVALID_PARTITIONS, "b has 3 partitions")
    answer = harness.ask(
        API,
        version,
        topics=[more("a", 4), more("b", 2)],
        validate_only=False,
        timeout=timedelta(milliseconds=55),
    )
    assert rows(answer.results, "name", "error_code", "error_message") == [
        ("a", ErrorCode.NONE, None),
        ("b", ErrorCode.INVALID_PARTITIONS, "b has 3 partitions"),
    ]
    assert harness.controller.added == [
        NewPartitions(name="a", total=4),
        NewPartitions(name="b", total=2),
    ]
    assert (harness.controller.validate_only, harness.controller.timeout_ms) == (False, 55)


@pytest.mark.parametrize("version", API.versions)
def test_the_new_partitions_can_be_assigned(harness: AdminApiHarness, version: int) -> None:
    assignments = [{"broker_ids": [2, 1]}, {"broker_ids": [1, 2]}]
    harness.ask(API, version, topics=[more("a", 3, assignments)], validate_only=True)
    (added,) = harness.controller.added
    assert added.assignment == ((OTHER_ID, OWN_ID), (OWN_ID, OTHER_ID))
    assert harness.controller.validate_only is True


def test_an_empty_assignment_is_not_the_absence_of_one(harness: AdminApiHarness) -> None:
    harness.ask(API, LAST, topics=[more("a", 3, [])], validate_only=False)
    assert rows(harness.controller.added, "assignment") == [()]


def test_a_topic_named_twice_is_refused_once(harness: AdminApiHarness) -> None:
    answer = harness.ask(
        API, LAST, topics=[more("a", 3), more("b", 3), more("a", 4)], validate_only=False
    )
    assert rows(answer.results, "name", "error_code") == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert rows(harness.controller.added, "name") == ["b"]


def test_adding_needs_permission_whether_or_not_the_topic_exists(harness: AdminApiHarness) -> None:
    harness.update(topic_state("a"))
    harness.acl.forbid(AclOperation.ALTER, ResourceType.TOPIC, "a")
    harness.acl.forbid(AclOperation.ALTER, ResourceType.TOPIC, "nowhere")
    answer = harness.ask(API, LAST, topics=[more("a", 3), more("nowhere", 3)], validate_only=False)
    assert set(rows(answer.results, "error_code")) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not harness.controller.added
