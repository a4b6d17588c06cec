"""When a coordinator comes into being, and that none is missed or made twice."""

from collections.abc import Sequence
from typing import Any, Self, cast
from uuid import UUID

from penstock.model.cluster import (
    OFFSETS_TOPIC,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.replication.metadata_cache import MetadataCache
from penstock.server.lazy_coordinator import LateCoordinator

ME, OTHER = BrokerId(1), BrokerId(2)


class Built:
    """Stands where `Groups` or `Transactions` does."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @property
    def coordinator(self) -> Self:
        return self

    def start(self, tasks: object) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


class Bench:
    def __init__(self) -> None:
        self.cluster = MetadataCache()
        self.built: list[Built] = []
        self.late: LateCoordinator[Built] = LateCoordinator(
            OFFSETS_TOPIC, ME, self.cluster, self._build
        )

    def _build(self) -> Built:
        self.built.append(Built())
        return self.built[-1]

    def start(self) -> None:
        self.late.start(cast("Any", object()))

    def tell(self, topic: str, leaders: Sequence[BrokerId]) -> None:
        states = tuple(
            PartitionState(leader, LeaderEpoch(0), (leader,), (leader,)) for leader in leaders
        )
        state = TopicState(name=topic, topic_id=TopicId(UUID(int=1)), partitions=states)
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=(state,),
            )
        )


def test_nothing_is_built_for_topics_of_others() -> None:
    bench = Bench()
    bench.start()
    bench.tell("orders", [ME])
    bench.tell(OFFSETS_TOPIC, [OTHER, OTHER])
    bench.late.stop()
    assert bench.built == []


def test_the_first_who_asks_gets_it_built_and_running() -> None:
    bench = Bench()
    bench.start()
    service = bench.late.get_service()
    assert service is bench.late.get_service()
    (built,) = bench.built
    assert built.calls == ["start"]


def test_a_broker_that_leads_offsets_builds_it_before_anybody_asks() -> None:
    bench = Bench()
    bench.tell(OFFSETS_TOPIC, [OTHER, ME])
    (built,) = bench.built
    assert built.calls == []  # it runs from the start on
    bench.start()
    bench.tell(OFFSETS_TOPIC, [ME, ME])
    bench.late.stop()
    assert (bench.built, built.calls) == ([built], ["start", "stop"])
