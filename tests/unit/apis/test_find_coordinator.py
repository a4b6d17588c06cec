"""FindCoordinator for groups and transactional ids."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apis.harness import ME, OTHER, ApiHarness, node, topic_state

from penstock.apis.registry import APIS
from penstock.model.cluster import NO_BROKER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.FIND_COORDINATOR
VERSIONS = APIS[KEY].versions
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
GROUP, TRANSACTION = 0, 1


def find(harness: ApiHarness, version: int, key_type: int = GROUP) -> Any:
    reply = harness.ask(KEY, version, key="g", key_type=key_type, coordinator_keys=["g"])
    if version < 4:
        return reply
    (answer,) = reply.coordinators
    assert answer.key == "g"
    return answer


def address(answer: Any) -> tuple[int, int, str, int]:
    return answer.error_code, answer.node_id, answer.host, answer.port


@pytest.mark.parametrize("version", VERSIONS)
def test_this_broker_is_returned_with_the_address_of_the_clients_listener(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic(OFFSETS_TOPIC, 5)
    assert address(find(harness, version)) == (0, ME, "127.0.0.1", 9092)
    assert harness.groups.requests == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_coordinator_is_the_leader_of_the_groups_partition(
    harness: ApiHarness, version: int
) -> None:
    mine = topic_state(OFFSETS_TOPIC, 2)
    theirs = topic_state(OFFSETS_TOPIC, 1, replicas=(OTHER,), leader=OTHER)
    both = replace(mine, partitions=(*mine.partitions, *theirs.partitions))
    harness.update_metadata(both, brokers=(node(ME), node(OTHER)))
    harness.groups.partition = 2
    assert address(find(harness, version)) == (0, OTHER, "host-2", 9002)


@pytest.mark.parametrize("leader", [NO_BROKER, BrokerId(9)])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_a_reachable_leader_has_no_coordinator(
    harness: ApiHarness, version: int, leader: BrokerId
) -> None:
    harness.update_metadata(topic_state(OFFSETS_TOPIC, leader=leader, replicas=(leader,)))
    answer = find(harness, version)
    assert address(answer) == (NOT_AVAILABLE, -1, "", -1)
    if version >= 1:
        assert answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_request_creates_the_topic(harness: ApiHarness, version: int) -> None:
    harness.runs_at_once = False
    sent = harness.send(KEY, version, key="g", coordinator_keys=["g"])
    harness.make_topic(OFFSETS_TOPIC)  # as a coordinator does
    harness.run_tasks()
    assert harness.groups.requests == ["ensure_topic"]
    answer = sent.reply.coordinators[0] if version >= 4 else sent.reply
    assert address(answer) == (0, ME, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_creation_leaves_the_group_without_coordinator(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.topic_code = ErrorCode.INVALID_REPLICATION_FACTOR
    answer = find(harness, version)
    assert address(answer) == (NOT_AVAILABLE, -1, "", -1)
    if version >= 1:
        assert "INVALID_REPLICATION_FACTOR" in answer.error_message


def test_a_created_topic_missing_from_metadata_makes_the_client_retry(
    harness: ApiHarness,
) -> None:
    assert address(find(harness, 4)) == (NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_created_for_an_unauthorized_caller(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "g")
    assert find(harness, version).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert harness.groups.requests == []


@pytest.mark.parametrize("version", range(4, 7))
def test_several_groups_create_the_topic_once(harness: ApiHarness, version: int) -> None:
    harness.groups.topic_code = ErrorCode.KAFKA_STORAGE_ERROR
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "theirs")
    reply = harness.ask(KEY, version, key_type=GROUP, coordinator_keys=["b", "theirs", "a"])
    assert [(coordinator.key, coordinator.error_code) for coordinator in reply.coordinators] == [
        ("b", NOT_AVAILABLE),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("a", NOT_AVAILABLE),
    ]
    assert harness.groups.requests == ["ensure_topic"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_coordinator_is_the_leader_of_the_transactional_ids_partition(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic(OFFSETS_TOPIC, 2)
    theirs = topic_state(TRANSACTIONS_TOPIC, 3, replicas=(OTHER,), leader=OTHER)
    harness.update_metadata(theirs, brokers=(node(ME), node(OTHER)))
    harness.transactions.partition = 2
    assert address(find(harness, version, TRANSACTION)) == (0, OTHER, "host-2", 9002)
    assert (harness.groups.requests, harness.transactions.requests) == ([], [])


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_first_transactional_id_creates_its_own_topic(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic(OFFSETS_TOPIC)
    harness.runs_at_once = False
    sent = harness.send(KEY, version, key="g", key_type=TRANSACTION, coordinator_keys=["g"])
    harness.make_topic(TRANSACTIONS_TOPIC)
    harness.run_tasks()
    answer = sent.reply.coordinators[0] if version >= 4 else sent.reply
    assert address(answer) == (0, ME, "127.0.0.1", 9092)
    assert (harness.groups.requests, harness.transactions.requests) == ([], ["ensure_topic"])


def test_a_failed_creation_of_the_transaction_topic_names_it(harness: ApiHarness) -> None:
    harness.transactions.topic_code = ErrorCode.INVALID_REPLICATION_FACTOR
    answer = find(harness, 4, TRANSACTION)
    assert address(answer) == (NOT_AVAILABLE, -1, "", -1)
    assert TRANSACTIONS_TOPIC in answer.error_message


def test_transactional_ids_require_their_own_permission(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "g")
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert find(harness, 4, TRANSACTION).error_code == code


@pytest.mark.parametrize("key_type", [2, -1, 127])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_other_coordinator_types_are_rejected(
    harness: ApiHarness, version: int, key_type: int
) -> None:
    """Including share groups (2)."""
    assert find(harness, version, key_type).error_code == ErrorCode.INVALID_REQUEST
