"""A coordinator is built once: on the first request, or when this broker leads a partition."""

from collections.abc import Sequence
from uuid import UUID

from tests.unit.replication.harness import ME, OTHER, ReplicationHarness
from tests.unit.server.contexts import broker_context

from penstock.model.cluster import (
    OFFSETS_TOPIC,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.server.coordinator_leadership import CoordinatorLeadership, build_when_leading
from penstock.server.lazy import Lazy


class Harness:
    def __init__(self) -> None:
        self.context = broker_context(ReplicationHarness())
        self.built: list[object] = []
        self.coordinator: Lazy[object] = Lazy(self._build)
        build_when_leading(self.coordinator, OFFSETS_TOPIC, self.context)

    def _build(self) -> object:
        self.built.append(object())
        return self.built[-1]

    def update(self, topic: str, leaders: Sequence[BrokerId], epoch: int = 0) -> None:
        states = tuple(
            PartitionState(leader, LeaderEpoch(epoch), (leader,), (leader,)) for leader in leaders
        )
        state = TopicState(name=topic, topic_id=TopicId(UUID(int=1)), partitions=states)
        self.context.metadata.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=(state,),
            )
        )


def test_no_coordinator_is_built_for_partitions_of_other_brokers() -> None:
    harness = Harness()
    harness.update("orders", [ME])
    harness.update(OFFSETS_TOPIC, [OTHER, OTHER])
    assert harness.coordinator.find() is None
    assert harness.built == []


def test_the_first_request_builds_the_coordinator_once() -> None:
    harness = Harness()
    coordinator = harness.coordinator.get()
    assert coordinator is harness.coordinator.get()
    harness.update(OFFSETS_TOPIC, [ME])
    assert harness.built == [coordinator]


def test_leading_a_partition_of_the_topic_builds_the_coordinator() -> None:
    harness = Harness()
    harness.update(OFFSETS_TOPIC, [OTHER, ME])
    (built,) = harness.built
    harness.update(OFFSETS_TOPIC, [ME, ME])
    assert harness.coordinator.find() is built
    assert harness.built == [built]


class RecordingCoordinator:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def take_partition(self, partition: int, leader_epoch: int) -> None:
        self.calls.append(("take", partition, leader_epoch))

    def drop_partition(self, partition: int) -> None:
        self.calls.append(("drop", partition, -1))


def test_a_coordinator_drops_partitions_that_are_no_longer_led() -> None:
    harness, coordinator = Harness(), RecordingCoordinator()
    leadership = CoordinatorLeadership(OFFSETS_TOPIC, coordinator, harness.context)
    leadership.update()
    harness.update(OFFSETS_TOPIC, [ME, OTHER, ME], epoch=4)
    leadership.update()
    harness.update(OFFSETS_TOPIC, [OTHER, OTHER, ME], epoch=5)
    leadership.update()
    assert coordinator.calls == [("take", 0, 4), ("take", 2, 4), ("drop", 0, -1), ("take", 2, 5)]
