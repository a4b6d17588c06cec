"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, as bytes."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, rows

from penstock.apis.admin import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from penstock.controller.interface import ApiError, Reassignment
from penstock.model.admin import ElectionType
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

ELECT = elect_leaders.API
MOVE = alter_partition_reassignments.API
LIST = list_partition_reassignments.API
TIMEOUT = timedelta(milliseconds=77)


def named(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topic": topic, "partitions": partitions}


def elect(harness: AdminApiHarness, version: int, topics: Any, **fields: Any) -> Any:
    kind = {"election_type": 0} if version >= 1 else {}
    return harness.ask(ELECT, version, topic_partitions=topics, **kind, **fields)


class TestElectLeaders:
    @pytest.mark.parametrize("version", ELECT.versions)
    def test_each_partition_has_its_result(self, harness: AdminApiHarness, version: int) -> None:
        harness.controller.refusals["b"] = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "it leads")
        topics = [named("a", 1, 0), named("b", 2)]
        answer = elect(harness, version, topics, timeout=TIMEOUT)
        a, b = answer.replica_election_results
        assert (a.topic, b.topic) == ("a", "b")
        fields = ("partition_id", "error_code", "error_message")
        assert rows(a.partition_result, *fields) == [(1, 0, None), (0, 0, None)]
        assert rows(b.partition_result, *fields) == [(2, ErrorCode.ELECTION_NOT_NEEDED, "it leads")]
        requested = [TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)]
        assert harness.controller.elected == [(ElectionType.PREFERRED, requested)]
        assert harness.controller.timeout_ms == 77

    @pytest.mark.parametrize("version", ELECT.versions)
    def test_all_partitions_can_be_requested(self, harness: AdminApiHarness, version: int) -> None:
        answer = elect(harness, version, None)
        assert rows(answer.replica_election_results, "topic") == ["all"]
        assert harness.controller.elected == [(ElectionType.PREFERRED, None)]

    @pytest.mark.parametrize("version", ELECT.versions[1:])
    def test_an_unclean_election_must_be_requested(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        harness.ask(ELECT, version, election_type=1, topic_partitions=[named("a", 0)])
        assert harness.controller.elected[0][0] is ElectionType.UNCLEAN

    @pytest.mark.parametrize("version", ELECT.versions[1:])
    def test_an_unknown_election_type_is_refused(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        answer = harness.ask(ELECT, version, election_type=2, topic_partitions=None)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not harness.controller.elected

    @pytest.mark.parametrize("version", ELECT.versions)
    def test_a_broker_that_is_not_the_controller_says_so(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        harness.controller.refusals[""] = ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
        answer = elect(harness, version, [named("a", 0)])
        [result] = answer.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.NOT_CONTROLLER
        assert getattr(answer, "error_code", result.error_code) == ErrorCode.NOT_CONTROLLER

    @pytest.mark.parametrize("version", ELECT.versions)
    def test_it_needs_permission(self, harness: AdminApiHarness, version: int) -> None:
        harness.acl.forbid(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        answer = elect(harness, version, [named("a", 0)])
        [result] = answer.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not harness.controller.elected


def moved(topic: str, *partitions: tuple[int, list[int] | None]) -> dict[str, Any]:
    entries = [{"partition_index": n, "replicas": replicas} for n, replicas in partitions]
    return {"name": topic, "partitions": entries}


class TestAlterPartitionReassignments:
    @pytest.mark.parametrize("version", MOVE.versions)
    def test_each_partition_has_its_result(self, harness: AdminApiHarness, version: int) -> None:
        harness.controller.refusals["b"] = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
        topics = [moved("a", (0, [1, 2]), (3, None)), moved("b", (1, []))]
        answer = harness.ask(MOVE, version, topics=topics, timeout=TIMEOUT)
        assert (answer.error_code, answer.error_message) == (0, None)
        a, b = answer.responses
        assert rows(a.partitions, "partition_index", "error_code") == [(0, 0), (3, 0)]
        assert rows(b.partitions, "error_code", "error_message") == [
            (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
        ]
        assert harness.controller.moved == [
            Reassignment(TopicPartition("a", 0), (BrokerId(1), BrokerId(2))),
            Reassignment(TopicPartition("a", 3), None),
            Reassignment(TopicPartition("b", 1), ()),
        ]
        assert (
            harness.controller.allow_replication_factor_change,
            harness.controller.timeout_ms,
        ) == (
            True,
            77,
        )

    def test_version_1_may_forbid_another_number_of_replicas(
        self, harness: AdminApiHarness
    ) -> None:
        harness.ask(MOVE, 1, topics=[moved("a", (0, [1]))], allow_replication_factor_change=False)
        assert harness.controller.allow_replication_factor_change is False

    @pytest.mark.parametrize("version", MOVE.versions)
    def test_a_partition_named_twice_is_not_reassigned(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        topics = [moved("a", (0, [1]), (1, [1])), moved("a", (0, [2]))]
        answer = harness.ask(MOVE, version, topics=topics)
        codes = [
            partition.error_code for topic in answer.responses for partition in topic.partitions
        ]
        twice = ErrorCode.INVALID_REQUEST
        assert codes == [twice, ErrorCode.NONE, twice]
        assert harness.controller.moved == [Reassignment(TopicPartition("a", 1), (BrokerId(1),))]

    @pytest.mark.parametrize("version", MOVE.versions)
    def test_a_broker_that_is_not_the_controller_says_so_once(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        harness.controller.refusals["a"] = ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
        answer = harness.ask(MOVE, version, topics=[moved("a", (0, [1]))])
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.NOT_CONTROLLER,
            "ask another",
        )
        assert answer.responses == ()

    @pytest.mark.parametrize("version", MOVE.versions)
    def test_it_needs_permission(self, harness: AdminApiHarness, version: int) -> None:
        harness.acl.forbid(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        answer = harness.ask(MOVE, version, topics=[moved("a", (0, [1]))])
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not harness.controller.moved


class TestListPartitionReassignments:
    MOVING = PartitionState(
        leader=BrokerId(0),
        leader_epoch=LeaderEpoch(1),
        replicas=(BrokerId(2), BrokerId(1), BrokerId(0)),
        in_sync=(BrokerId(0),),
        adding=(BrokerId(2),),
        removing=(BrokerId(0),),
    )

    def test_reassignments_in_progress_have_adding_and_removing_replicas(
        self, harness: AdminApiHarness
    ) -> None:
        harness.controller.moving = {TopicPartition("a", 3): self.MOVING}
        answer = harness.ask(LIST, 0, topics=None, timeout=TIMEOUT)
        [topic] = answer.topics
        assert topic.name == "a"
        fields = ("partition_index", "replicas", "adding_replicas", "removing_replicas")
        assert rows(topic.partitions, *fields) == [(3, (2, 1, 0), (2,), (0,))]

    def test_only_requested_partitions_are_returned(self, harness: AdminApiHarness) -> None:
        names = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
        harness.controller.moving = dict.fromkeys(names, self.MOVING)
        requested = [
            {"name": "a", "partition_indexes": [1, 7]},
            {"name": "c", "partition_indexes": [0]},
        ]
        [topic] = harness.ask(LIST, 0, topics=requested).topics
        assert (topic.name, rows(topic.partitions, "partition_index")) == ("a", [1])

    def test_a_broker_that_is_not_the_controller_says_so(self, harness: AdminApiHarness) -> None:
        harness.controller.moving = ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
        answer = harness.ask(LIST, 0, topics=None)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.NOT_CONTROLLER,
            "ask another",
        )

    def test_it_needs_permission(self, harness: AdminApiHarness) -> None:
        harness.controller.moving = {TopicPartition("a", 3): self.MOVING}
        harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        answer = harness.ask(LIST, 0, topics=None)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer.topics == ()
