"""Without permission nothing is revealed, by any admin request in any version."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, topic_id_of, topic_state

from penstock.apis.admin import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
)
from penstock.apis.api import Api
from penstock.apis.cluster import describe_cluster, describe_topic_partitions
from penstock.apis.data import delete_records
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Caller

TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class DenyAll:
    def __init__(self) -> None:
        self.checked = 0

    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        self.checked += 1
        return False

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        return self.allows(caller, operation, resource, "*")

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        return self.allows(caller, operation, resource, name)


class TopicRequest(NamedTuple):
    """A request about one topic, and where its response has that topic's error."""

    api: Api
    fields: Callable[[int, str], dict[str, Any]]  # (version, topic) -> fields
    error_of: Callable[[Any], int]
    error: ErrorCode = TOPIC_FAILED


def _new_topic(version: int, name: str) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic | {"assignments": [], "configs": []}]}


def _deletion(version: int, name: str) -> dict[str, Any]:
    if version >= 6:
        return {"topics": [{"name": name, "topic_id": None}]}
    return {"topic_names": [name]}


def _deleted_records(version: int, name: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": -1}]
    return {"topics": [{"name": name, "partitions": partitions}]}


def _more_partitions(version: int, name: str) -> dict[str, Any]:
    topics = [{"name": name, "count": 9, "assignments": None}]
    return {"topics": topics, "validate_only": False}


def _config_change(**operation: int) -> Callable[[int, str], dict[str, Any]]:
    def fields(version: int, name: str) -> dict[str, Any]:
        configs = [{"name": "retention.ms", "value": "5"} | operation]
        resource = {"resource_type": 2, "resource_name": name, "configs": configs}
        return {"resources": [resource], "validate_only": False}

    return fields


def _settings(version: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    return {"resources": [resource]}


TRIALS = (
    TopicRequest(create_topics.API, _new_topic, lambda answer: answer.topics[0].error_code),
    TopicRequest(delete_topics.API, _deletion, lambda answer: answer.responses[0].error_code),
    TopicRequest(
        create_partitions.API, _more_partitions, lambda answer: answer.results[0].error_code
    ),
    TopicRequest(
        delete_records.API,
        _deleted_records,
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    TopicRequest(describe_configs.API, _settings, lambda answer: answer.results[0].error_code),
    TopicRequest(
        alter_configs.API, _config_change(), lambda answer: answer.responses[0].error_code
    ),
    TopicRequest(
        incremental_alter_configs.API,
        _config_change(config_operation=0),
        lambda answer: answer.responses[0].error_code,
    ),
    TopicRequest(
        describe_topic_partitions.API,
        lambda version, name: {"topics": [{"name": name}]},
        lambda answer: answer.topics[0].error_code,
    ),
    TopicRequest(
        describe_log_dirs.API,
        lambda version, name: {"topics": [{"topic": name, "partitions": [0]}]},
        # Before version 3, a response without directories means an error.
        lambda answer: getattr(answer, "error_code", CLUSTER_FAILED if not answer.results else 0),
        CLUSTER_FAILED,
    ),
)
EVERY_VERSION = pytest.mark.parametrize(
    ("trial", "version"),
    [
        pytest.param(trial, version, id=f"{trial.api.key.title}-{version}")
        for trial in TRIALS
        for version in trial.api.versions
    ],
)


@pytest.fixture
def nobody(harness: AdminApiHarness) -> DenyAll:
    harness.serve(topic_state("there"))
    harness.write(TopicPartition("there", 0), 3)
    authorizer = DenyAll()
    harness.services = replace(harness.services, authorizer=authorizer)
    return authorizer


@EVERY_VERSION
def test_nothing_is_done_without_permission(
    harness: AdminApiHarness, nobody: DenyAll, trial: TopicRequest, version: int
) -> None:
    answer = harness.ask(trial.api, version, **trial.fields(version, "there"))
    assert trial.error_of(answer) == trial.error
    assert nobody.checked > 0
    controller = harness.controller
    assert not [*controller.created, *controller.deleted, *controller.added, *controller.changed]
    assert harness.replicas.get(TopicPartition("there", 0)).log_start_offset == 0


@EVERY_VERSION
def test_a_refusal_does_not_reveal_whether_the_topic_exists(
    harness: AdminApiHarness, nobody: DenyAll, trial: TopicRequest, version: int
) -> None:
    there = harness.ask(trial.api, version, **trial.fields(version, "there"))
    where = harness.ask(trial.api, version, **trial.fields(version, "where"))
    assert repr(there).replace("there", "where") == repr(where)


@pytest.mark.parametrize("version", describe_cluster.API.versions)
def test_cluster_operations_are_hidden_without_describe(
    harness: AdminApiHarness, nobody: DenyAll, version: int
) -> None:
    answer = harness.ask(describe_cluster.API, version, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 0
    assert nobody.checked > 0


def test_an_id_is_not_resolved_without_permission(
    harness: AdminApiHarness, nobody: DenyAll
) -> None:
    topics = [{"name": None, "topic_id": topic_id_of("there")}]
    (result,) = harness.ask(delete_topics.API, 6, topics=topics).responses
    assert (result.name, result.error_code) == (None, TOPIC_FAILED)
    assert "'there'" not in result.error_message
