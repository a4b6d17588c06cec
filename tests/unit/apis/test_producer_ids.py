"""InitProducerId without a transactional id, and DescribeProducers."""

from typing import Any

import pytest
from tests.unit.apis.harness import NOW_MS, OTHER, ApiHarness, batch, topic_state

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

INIT = ApiKey.INIT_PRODUCER_ID
DESCRIBE = ApiKey.DESCRIBE_PRODUCERS


# -- InitProducerId ------------------------------------------------------------------------


def init(harness: ApiHarness, version: int, **values: Any) -> tuple[int, int, int]:
    reply = harness.ask(INIT, version, **values)
    return reply.error_code, reply.producer_id, reply.producer_epoch


@pytest.mark.parametrize("version", APIS[INIT].versions)
def test_every_version_allocates_a_new_id(harness: ApiHarness, version: int) -> None:
    first, second = init(harness, version), init(harness, version)
    assert (first[0], first[2], second[0], second[2]) == (0, 0, 0, 0)
    assert first[1] != second[1]


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_lost_its_sequence_gets_a_new_id(harness: ApiHarness, version: int) -> None:
    """KIP-360: if two producers claim the old id, neither can write under the other's new one."""
    code, producer_id, epoch = init(harness, version, producer_id=7, producer_epoch=3)
    assert (code, epoch) == (0, 0)
    assert producer_id != 7


@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 3}])
def test_an_id_without_epoch_or_an_epoch_without_id_is_invalid(
    harness: ApiHarness, half: dict[str, int]
) -> None:
    assert init(harness, 5, **half) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_transactional_ids_require_their_own_permission(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "theirs")
    code, *_ = init(harness, 4, transactional_id="theirs")
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_write_on_any_topic_allows_idempotence(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster")
    assert init(harness, 4)[0] == 0
    harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, "*")  # no topic may be written
    assert init(harness, 4)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_failed_allocation_is_an_error(harness: ApiHarness) -> None:
    async def refuse() -> int:
        raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    harness.controller.next_producer_id = refuse  # type: ignore[method-assign]
    assert init(harness, 4) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


# -- DescribeProducers ---------------------------------------------------------------------


def describe(harness: ApiHarness, topic: str = "orders") -> Any:
    reply = harness.ask(DESCRIBE, 0, topics=[{"name": topic, "partition_indexes": [0]}])
    (answer,) = reply.topics[0].partitions
    return answer


def test_producers_are_described_with_their_open_transactions(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a", b"b", producer_id=5, producer_epoch=2, base_sequence=0))
    open_one = batch(
        b"c", at_ms=NOW_MS, producer_id=6, producer_epoch=0, base_sequence=0, transactional=True
    )
    harness.replicas.append(
        [(TopicPartition("orders", 0), memoryview(open_one))],
        acks=1,
        timeout_ms=0,
        done=lambda _: None,
    )
    answer = describe(harness)
    assert answer.error_code == 0
    codes = {
        producer.producer_id: (
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in answer.active_producers
    }
    assert codes == {5: (2, 1, NOW_MS + 1, -1, -1), 6: (0, 0, NOW_MS, -1, 2)}


def test_producers_of_missing_remote_and_hidden_partitions_are_not_described(
    harness: ApiHarness,
) -> None:
    harness.update_metadata(topic_state("far", replicas=(OTHER,), leader=OTHER))
    harness.guard.deny(AclOperation.READ, ResourceType.TOPIC, "hidden")
    codes = {topic: describe(harness, topic).error_code for topic in ("absent", "far", "hidden")}
    assert codes == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "far": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
