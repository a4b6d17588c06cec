"""FindCoordinator: where the requests of a group or of a transactional id go."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apis.workbench import ME, OTHER, Workbench, node, topic_state

from penstock.apis.registry import APIS
from penstock.model.cluster import NO_BROKER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.FIND_COORDINATOR
VERSIONS = APIS[KEY].versions
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
GROUP, TRANSACTION = 0, 1


def find(bench: Workbench, version: int, key_type: int = GROUP) -> Any:
    reply = bench.ask(KEY, version, key="g", key_type=key_type, coordinator_keys=["g"])
    if version < 4:
        return reply
    (answer,) = reply.coordinators
    assert answer.key == "g"
    return answer


def place(answer: Any) -> tuple[int, int, str, int]:
    return answer.error_code, answer.node_id, answer.host, answer.port


@pytest.mark.parametrize("version", VERSIONS)
def test_this_broker_is_told_under_the_address_that_the_client_knows(
    bench: Workbench, version: int
) -> None:
    bench.make_topic(OFFSETS_TOPIC, 5)
    assert place(find(bench, version)) == (0, ME, "127.0.0.1", 9092)
    assert bench.groups.asked == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_of_the_groups_partition_coordinates_it(bench: Workbench, version: int) -> None:
    mine = topic_state(OFFSETS_TOPIC, 2)
    theirs = topic_state(OFFSETS_TOPIC, 1, replicas=(OTHER,), leader=OTHER)
    both = replace(mine, partitions=(*mine.partitions, *theirs.partitions))
    bench.tell(both, brokers=(node(ME), node(OTHER)))
    bench.groups.partition = 2
    assert place(find(bench, version)) == (0, OTHER, "host-2", 9002)


@pytest.mark.parametrize("leader", [NO_BROKER, BrokerId(9)])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_a_leader_that_can_be_reached_has_no_coordinator(
    bench: Workbench, version: int, leader: BrokerId
) -> None:
    bench.tell(topic_state(OFFSETS_TOPIC, leader=leader, replicas=(leader,)))
    answer = find(bench, version)
    assert place(answer) == (NOT_AVAILABLE, -1, "", -1)
    if version >= 1:
        assert answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_who_asks_has_the_topic_made_and_hears_at_once(
    bench: Workbench, version: int
) -> None:
    bench.runs_at_once = False
    sent = bench.send(KEY, version, key="g", coordinator_keys=["g"])
    bench.make_topic(OFFSETS_TOPIC)  # what the coordinator would have done meanwhile
    bench.run_tasks()
    assert bench.groups.asked == ["ensure_topic"]
    answer = sent.reply.coordinators[0] if version >= 4 else sent.reply
    assert place(answer) == (0, ME, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_cannot_be_made_leaves_the_group_without_coordinator(
    bench: Workbench, version: int
) -> None:
    bench.groups.topic_code = ErrorCode.INVALID_REPLICATION_FACTOR
    answer = find(bench, version)
    assert place(answer) == (NOT_AVAILABLE, -1, "", -1)
    if version >= 1:
        assert "INVALID_REPLICATION_FACTOR" in answer.error_message


def test_a_topic_that_is_made_but_not_known_here_yet_is_asked_for_again(bench: Workbench) -> None:
    assert place(find(bench, 4)) == (NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_made_for_who_may_not_ask(bench: Workbench, version: int) -> None:
    bench.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "g")
    assert find(bench, version).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert bench.groups.asked == []


@pytest.mark.parametrize("version", range(4, 7))
def test_several_groups_are_answered_each_and_the_topic_is_made_once(
    bench: Workbench, version: int
) -> None:
    bench.groups.topic_code = ErrorCode.KAFKA_STORAGE_ERROR
    bench.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "theirs")
    reply = bench.ask(KEY, version, key_type=GROUP, coordinator_keys=["b", "theirs", "a"])
    assert [(coordinator.key, coordinator.error_code) for coordinator in reply.coordinators] == [
        ("b", NOT_AVAILABLE),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("a", NOT_AVAILABLE),
    ]
    assert bench.groups.asked == ["ensure_topic"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_leader_of_a_transactional_ids_partition_coordinates_it(
    bench: Workbench, version: int
) -> None:
    bench.make_topic(OFFSETS_TOPIC, 2)
    theirs = topic_state(TRANSACTIONS_TOPIC, 3, replicas=(OTHER,), leader=OTHER)
    bench.tell(theirs, brokers=(node(ME), node(OTHER)))
    bench.transactions.partition = 2
    assert place(find(bench, version, TRANSACTION)) == (0, OTHER, "host-2", 9002)
    assert (bench.groups.asked, bench.transactions.asked) == ([], [])


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_first_transactional_id_has_its_own_topic_made(bench: Workbench, version: int) -> None:
    bench.make_topic(OFFSETS_TOPIC)
    bench.runs_at_once = False
    sent = bench.send(KEY, version, key="g", key_type=TRANSACTION, coordinator_keys=["g"])
    bench.make_topic(TRANSACTIONS_TOPIC)
    bench.run_tasks()
    answer = sent.reply.coordinators[0] if version >= 4 else sent.reply
    assert place(answer) == (0, ME, "127.0.0.1", 9092)
    assert (bench.groups.asked, bench.transactions.asked) == ([], ["ensure_topic"])


def test_a_topic_of_transactions_that_cannot_be_made_is_named(bench: Workbench) -> None:
    bench.transactions.topic_code = ErrorCode.INVALID_REPLICATION_FACTOR
    answer = find(bench, 4, TRANSACTION)
    assert place(answer) == (NOT_AVAILABLE, -1, "", -1)
    assert TRANSACTIONS_TOPIC in answer.error_message


def test_transactional_ids_need_their_own_permission(bench: Workbench) -> None:
    bench.guard.deny(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "g")
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert find(bench, 4, TRANSACTION).error_code == code


@pytest.mark.parametrize("key_type", [2, -1, 127])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_there_are_no_coordinators_of_other_types(
    bench: Workbench, version: int, key_type: int
) -> None:
    """Share groups (2) among them."""
    assert find(bench, version, key_type).error_code == ErrorCode.INVALID_REQUEST
