"""World: the time, randomness, network, store and live brokers of a simulated cluster.

Has no rules. There is one topic. It has one partition, because more would only be more of the same,
except where a cluster is balanced.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.controller.znodes import encode_state, encode_topic
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.embedded.znode_tree import Failure
from penstock.metadata_store.interface import Operation, SessionId
from penstock.model.cluster import BrokerId, ControllerEpoch, PartitionState, TopicState
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.testing.simulation.metadata_store import SimulatedMetadataStore
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.schedule import Schedule

if TYPE_CHECKING:
    from penstock.testing.simulation.broker import SimulatedBroker
    from penstock.testing.simulation.checker import InvariantChecker

TOPIC = "orders"
SESSION_MS = 120


class World:
    def __init__(
        self,
        seed: int,
        *,
        brokers: int,
        configs: dict[str, str],
        partitions: int = 1,
        replicas: int | None = None,  # None: on all brokers
        loses_data: bool = False,
        is_balanced: bool = False,
    ) -> None:
        self.tps = tuple(TopicPartition(TOPIC, number) for number in range(partitions))
        self.tp = self.tps[0]  # the one that faults aim at
        self.is_balanced = is_balanced  # the controller balances, and partitions are reassigned
        self.loses_data = loses_data  # brokers come back without some of their data
        self.random = Random(seed)
        self.schedule = Schedule()
        self.network = Network(self.schedule, Random(self.random.random()))
        self.controllers_crash = is_balanced  # between two writes; until the faults end
        self.undone = 0  # reassignments that the controller cancelled because a broker was back
        self.store = SimulatedMetadataStore(lambda: self.schedule.now_ms)
        self.broker_ids = tuple(BrokerId(number) for number in range(1, brokers + 1))
        self.replication_factor = brokers if replicas is None else replicas
        first_ones = self.broker_ids[: self.replication_factor]
        self.topic = _new_topic(first_ones, partitions, configs)
        self.brokers: dict[BrokerId, SimulatedBroker] = {}  # those that are up, paused or not
        self.heartbeats: dict[SessionId, int] = {}  # when the store last got one of each session
        self.on_crash: Callable[[SimulatedBroker], None]  # a broker's disk crashed
        self.checkers: Mapping[TopicPartition, InvariantChecker]
        self.store.create_topic(
            self.tps,
            encode_topic(self.topic.topic_id, self.topic.partitions),
            encode_state(self.topic.partitions[0]),
        )

    @property
    def is_synchronous(self) -> bool:
        return self.topic.configs.get("flush.messages") == "1"

    @property
    def checker(self) -> "InvariantChecker":
        """Of the partition that faults aim at."""
        return self.checkers[self.tp]

    def deliver(self, target: BrokerId, action: Callable[["SimulatedBroker"], None]) -> None:
        """Deliver to the broker's current process, which must reject stale messages itself."""
        broker = self.brokers.get(target)
        if broker is not None:
            broker.run(lambda: action(broker))

    def write_as_controller(
        self, session: SessionId, elected: ElectionResult, writes: Sequence[Operation]
    ) -> Failure | None:
        is_current = elected.epoch_version == self.store.controller_epoch_version
        failure = self.store.write(session, elected.fence(writes))
        if failure is None:
            for checker in self.checkers.values():
                checker.on_stored(is_current=is_current)
        return failure


def _new_topic(
    replicas: tuple[BrokerId, ...], partitions: int, configs: dict[str, str]
) -> TopicState:
    state = PartitionState(replicas[0], LeaderEpoch(0), replicas, replicas, 0, ControllerEpoch(0))
    return TopicState(
        name=TOPIC,
        topic_id=TopicId(UUID(int=7)),
        partitions=(state,) * partitions,
        configs=configs,
    )
