"""AlterPartition: for brokers only, on the inter-broker listener, served by the controller."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, topic_id_of

from penstock.apis.cluster.alter_partition import API
from penstock.apis.inter_broker_access import InterBroker
from penstock.inter_broker.apis.registry import load_private_api
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
    AlterPartitionState,
    IsrMember,
)
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

STORED = AlterPartitionState(
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(5),
    in_sync=(BrokerId(1), BrokerId(2)),
    partition_epoch=9,
)


class FakeController:
    """A fake controller for requests of brokers; returns what a test sets."""

    def __init__(self) -> None:
        self.proposals: list[tuple[Sequence[AlterPartitionProposal], BrokerId, BrokerEpoch]] = []
        self.outcomes: list[AlterPartitionResult] = []
        self.refusal: Refusal | None = None

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        *,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        timeout_ms: int,
    ) -> list[AlterPartitionResult]:
        self.proposals.append((proposals, broker, broker_epoch))
        if self.refusal is not None:
            raise self.refusal
        return self.outcomes

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, *, timeout_ms: int
    ) -> tuple[TopicPartition, ...]:
        raise NotImplementedError

    async def fail_replicas(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        raise NotImplementedError

    async def replace_damaged_leaders(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        raise NotImplementedError


@pytest.fixture
def controller(harness: AdminApiHarness) -> FakeController:
    made = FakeController()
    inter_broker = InterBroker(
        listener="PLAINTEXT",
        membership=made,
        configs=harness.controller,
        handle_controller_request=lambda sent: None,
        load_api=load_private_api,
    )
    harness.services = replace(harness.services, inter_broker=inter_broker)
    return made


def ask(harness: AdminApiHarness, version: int) -> Any:
    partition: dict[str, Any] = {"partition_index": 3, "leader_epoch": 5, "partition_epoch": 8}
    if version >= 3:
        epochs = ((1, 11), (2, 12))
        partition["new_isr_with_epochs"] = [
            {"broker_id": broker, "broker_epoch": epoch} for broker, epoch in epochs
        ]
    else:
        partition["new_isr"] = [1, 2]
    topics = [{"topic_id": topic_id_of("a"), "partitions": [partition]}]
    return harness.ask(API, version, broker_id=1, broker_epoch=11, topics=topics)


@pytest.mark.parametrize("version", API.versions)
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION])
def test_each_partition_returns_its_stored_state(
    harness: AdminApiHarness, controller: FakeController, version: int, code: ErrorCode
) -> None:
    controller.outcomes = [AlterPartitionResult(code, STORED)]
    answer = ask(harness, version)
    [topic] = answer.topics
    [returned] = topic.partitions
    assert (answer.error_code, topic.topic_id) == (ErrorCode.NONE, topic_id_of("a"))
    assert (returned.partition_index, returned.error_code, returned.leader_id) == (3, code, 1)
    assert (returned.leader_epoch, returned.isr, returned.partition_epoch) == (5, (1, 2), 9)
    epochs = (11, 12) if version >= 3 else (-1, -1)
    members = tuple(
        IsrMember(BrokerId(n), BrokerEpoch(item)) for n, item in zip((1, 2), epochs, strict=True)
    )
    change = AlterPartitionProposal(topic_id_of("a"), 3, LeaderEpoch(5), 8, members)
    assert controller.proposals == [([change], 1, 11)]


@pytest.mark.parametrize("version", API.versions)
def test_a_refused_request_returns_no_partitions(
    harness: AdminApiHarness, controller: FakeController, version: int
) -> None:
    controller.refusal = Refusal(ErrorCode.STALE_BROKER_EPOCH)
    answer = ask(harness, version)
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, ())


@pytest.mark.parametrize("version", API.versions)
def test_requests_on_a_client_listener_are_refused(
    harness: AdminApiHarness, controller: FakeController, version: int
) -> None:
    """CVE-2018-1288: a client claims to be a broker."""
    harness.caller = harness.caller._replace(listener="CLIENTS")
    assert ask(harness, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not controller.proposals


@pytest.mark.parametrize("version", API.versions)
def test_a_broker_needs_permission(
    harness: AdminApiHarness, controller: FakeController, version: int
) -> None:
    harness.acl.forbid(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert ask(harness, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not controller.proposals


def test_a_single_node_refuses_it(harness: AdminApiHarness) -> None:
    assert ask(harness, API.versions[-1]).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
