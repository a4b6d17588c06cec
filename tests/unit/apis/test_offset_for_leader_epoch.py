"""OffsetForLeaderEpoch: where epochs ended, for consumers that detect truncation."""

from typing import Any

import pytest
from tests.unit.apis.harness import OTHER, ApiHarness, batch, topic_state

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = APIS[KEY].versions


def ask(
    harness: ApiHarness, version: int, epoch: int, *, current: int = -1, topic: str = "orders"
) -> tuple[int, int, int]:
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    reply: Any = harness.ask(KEY, version, topics=[{"topic": topic, "partitions": [partition]}])
    (answer,) = reply.topics[0].partitions
    assert (reply.topics[0].topic, answer.partition) == (topic, 0)
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_returns_the_largest_epoch_up_to_the_requested_one(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders", epoch=2)
    harness.fill("orders", batch(b"a", b"b"))
    harness.make_topic("orders", epoch=5)
    harness.fill("orders", batch(b"c"))
    requested = {epoch: ask(harness, version, epoch) for epoch in (-1, 0, 2, 3, 5, 6, 2**31 - 1)}
    assert requested == {
        -1: (0, -1, -1),
        0: (0, 0, 0),
        2: (0, 2, 2),
        3: (0, 2, 2),
        5: (0, 5, 3),
        6: (0, -1, -1),
        2**31 - 1: (0, -1, -1),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_are_fenced_by_leader_epoch(
    harness: ApiHarness, version: int, current: int, code: ErrorCode
) -> None:
    harness.make_topic("orders", epoch=5)
    assert ask(harness, version, 5, current=current)[0] == code


def test_absent_and_foreign_partitions_are_refused(harness: ApiHarness) -> None:
    harness.update_metadata(topic_state("far", replicas=(OTHER,), leader=OTHER))
    assert ask(harness, 4, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(harness, 4, 0, topic="far") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_permission_comes_before_existence(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    harness.guard.deny(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    for topic in ("orders", "absent"):
        harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        assert ask(harness, version, 0, topic=topic)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
