"""Epochs of controller requests are checked once, before replicas or metadata change."""

import pytest
from tests.unit.replication.harness import ME, ORDERS_ID, OTHER, P0, P1, ReplicationHarness

from penstock.config.raw_config import EMPTY_RAW_CONFIG
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.logs.event_logger import message_logger
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.server.dynamic_config import DynamicBrokerConfig

BOTH = (ME, OTHER)


class Harness:
    def __init__(self) -> None:
        self.replication = ReplicationHarness()
        self.metadata = self.replication.cluster
        self.handler = ControllerRequestHandler(
            ME,
            replicas=self.replication.replicas,
            metadata=self.metadata,
            dynamic_config=DynamicBrokerConfig(
                EMPTY_RAW_CONFIG, ME, message_logger(self.replication.reports.append)
            ),
            logger=message_logger(self.replication.reports.append),
        )
        self.handler.set_broker_epoch(BrokerEpoch(0))
        self._number = 0

    def handle(self, body: ControllerRequestBody, *, broker_epoch: int = 0) -> None:
        self._number += 1
        self.handler.handle(ControllerRequest(BrokerEpoch(broker_epoch), body, self._number))

    def lead(
        self,
        *partitions: TopicPartition,
        leader: BrokerId = ME,
        epoch: int = 0,
        controller_epoch: int = 1,
        broker_epoch: int = 0,
    ) -> None:
        state = PartitionState(leader, LeaderEpoch(epoch), BOTH, BOTH)
        self.handle(
            LeaderAndIsrRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(controller_epoch),
                broker_epoch=BrokerEpoch(broker_epoch),
                partitions=tuple(
                    LeaderAndIsrPartition(tp, ORDERS_ID, state, True) for tp in partitions
                ),
            ),
            broker_epoch=broker_epoch,
        )

    def stop(self, *partitions: TopicPartition, delete: bool, controller_epoch: int) -> None:
        self.handle(
            StopReplicaRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(controller_epoch),
                broker_epoch=BrokerEpoch(0),
                partitions=partitions,
                delete=delete,
            )
        )

    def update(self, *topics: TopicState, controller_epoch: int, is_full: bool = False) -> None:
        self.handle(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(controller_epoch),
                is_full=is_full,
                topics=topics,
            )
        )


def topic(name: str) -> TopicState:
    state = PartitionState(ME, LeaderEpoch(0), (ME,), (ME,))
    return TopicState(name=name, topic_id=ORDERS_ID, partitions=(state,))


def test_requests_with_a_stale_controller_epoch_change_no_replica() -> None:
    harness = Harness()
    harness.lead(P0, controller_epoch=4)
    with pytest.raises(Refusal) as caught:
        harness.lead(P0, P1, leader=OTHER, epoch=9, controller_epoch=3)
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    with pytest.raises(Refusal) as caught:
        harness.stop(P0, delete=True, controller_epoch=3)
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert harness.replication.partition().is_leader
    assert harness.replication.replicas.find(P1) is None


def test_stop_replica_has_the_controller_epoch_too() -> None:
    harness = Harness()
    harness.stop(P0, delete=False, controller_epoch=4)
    with pytest.raises(Refusal):
        harness.lead(P0, controller_epoch=3)


def test_an_update_metadata_with_a_stale_controller_epoch_changes_nothing() -> None:
    harness = Harness()
    applied: list[UpdateMetadataRequest] = []
    harness.update(topic("a"), controller_epoch=5)
    version = harness.metadata.version
    harness.metadata.listen(applied.append)
    with pytest.raises(Refusal) as caught:
        harness.update(topic("b"), controller_epoch=4, is_full=True)
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (set(harness.metadata.topics), harness.metadata.version, applied) == (
        {"a"},
        version,
        [],
    )


def test_a_request_with_a_stale_broker_epoch_does_not_raise_the_controller_epoch() -> None:
    harness = Harness()
    harness.handler.set_broker_epoch(BrokerEpoch(70))
    with pytest.raises(Refusal) as caught:
        harness.lead(P0, broker_epoch=69, controller_epoch=9)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    harness.lead(P0, broker_epoch=70, controller_epoch=8)
    assert harness.replication.partition().is_leader
