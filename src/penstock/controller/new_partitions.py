"""New partitions: their first state, their znodes, and the checks of their replicas. Pure.

Shared by CreateTopics and CreatePartitions. A topic exists once its first step is written; if a
crash ends the steps there, the next controller creates the partitions that the topic's znode names
and that have no state yet.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.controller.controller_requests import (
    leader_and_isr_requests,
    update_metadata_requests,
)
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.write_batches import request_bytes
from penstock.controller.znodes import encode_state, partition_path, state_path
from penstock.metadata_store.interface import MAX_REQUEST_BYTES, Create
from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, PartitionState, TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicId

# The limit of KRaft controllers: one request must not delay all others.
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_REPLICATION_FACTOR = 10

_MAX_STEP_BYTES = MAX_REQUEST_BYTES - 1024  # the rest is for the fence in the same transaction
_FIRST_EPOCH = LeaderEpoch(0)


class CreationDependencies(NamedTuple):
    """Dependencies of creation besides the state."""

    broker_config: EffectiveConfig
    random: Random
    new_topic_id: Callable[[], TopicId]
    max_partitions: int = MAX_PARTITIONS_PER_REQUEST  # in one request
    left_partitions: int = MAX_PARTITIONS_PER_REQUEST  # what is left of them for this batch


class CreationPlan:
    """Collects the topics of one request."""

    def __init__(self, state: ClusterState, dependencies: CreationDependencies) -> None:
        self.state = state
        self._left = dependencies.left_partitions
        self._limit = dependencies.max_partitions
        self._writes: list[WriteStep] = []
        self._new: dict[str, range] = {}

    def reserve(self, partitions: int) -> None:
        if partitions > self._left:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"one request may create at most {self._limit} partitions; "
                f"split it into several requests",
            )
        self._left -= partitions

    def add(self, topic: TopicState, writes: Iterable[WriteStep], new: range) -> None:
        self.state = self.state.with_topics([topic])
        self._writes += writes
        self._new[topic.name] = new

    def decision(self) -> ControllerDecision:
        if not self._new:
            return ControllerDecision(state=self.state)
        requests = leader_and_isr_requests(
            self.state, self._new, brokers=self.state.brokers, is_new=True
        )
        requests += update_metadata_requests(self.state, topics=self._new)
        return ControllerDecision(state=self.state, writes=tuple(self._writes), requests=requests)


def new_partition(
    replicas: tuple[BrokerId, ...], *, live: Container[BrokerId], epoch: ControllerEpoch
) -> PartitionState:
    """No replica has records, so that any live one may lead, and the ISR is all live ones; if none
    is alive, the first to come online leads."""
    in_sync = tuple(broker for broker in replicas if broker in live)
    return PartitionState(
        leader=in_sync[0] if in_sync else NO_BROKER,
        leader_epoch=_FIRST_EPOCH,
        replicas=replicas,
        in_sync=in_sync or replicas,
        partition_epoch=0,
        controller_epoch=epoch,
    )


def partition_creation(topic: str, number: int, partition: PartitionState) -> WriteStep:
    return (
        Create(path=partition_path(topic, number)),
        Create(path=state_path(topic, number), data=encode_state(partition)),
    )


def new_partitions(
    state: ClusterState, assignment: Iterable[tuple[BrokerId, ...]]
) -> tuple[PartitionState, ...]:
    epoch = state.controller_epoch
    return tuple(
        new_partition(replicas, live=state.brokers, epoch=epoch) for replicas in assignment
    )


def check_factor(factor: int, state: ClusterState) -> None:
    if factor > MAX_REPLICATION_FACTOR:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is above {MAX_REPLICATION_FACTOR}, the largest that is "
            f"allowed: each replica costs a write, and three survive the loss of two brokers",
        )
    if not 1 <= factor <= len(state.brokers):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is not possible: {len(state.brokers)} broker(s) are "
            f"alive, and each holds one replica",
        )


def check_replicas(
    state: ClusterState,
    topic: str,
    replicas: Sequence[tuple[BrokerId, ...]],
    *,
    factor: int,
    first: int,
) -> None:
    for number, brokers in enumerate(replicas, first):
        problem = _find_replica_problem(state, brokers, factor)
        if problem is not None:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} of {topic} {problem}"
            )


def _find_replica_problem(
    state: ClusterState, brokers: tuple[BrokerId, ...], factor: int
) -> str | None:
    if not brokers:
        return "has no replica; name at least one broker"
    if len(set(brokers)) != len(brokers):
        return f"has a broker twice: {list(brokers)}"
    unknown = [broker for broker in brokers if broker not in state.brokers]
    if unknown:
        return f"is assigned to {unknown}, which are not alive; alive are {sorted(state.brokers)}"
    if len(brokers) > MAX_REPLICATION_FACTOR:
        return f"has {len(brokers)} replicas; at most {MAX_REPLICATION_FACTOR} are allowed"
    if len(brokers) != factor:
        return f"has {len(brokers)} replicas, but the others have {factor}"
    return None


def checked_writes(topic: TopicState, steps: Iterator[WriteStep]) -> list[WriteStep]:
    """The steps; Refusal if the first, with the topic's znode, does not fit in one request."""
    first = next(steps)
    length = sum(map(request_bytes, first))
    if length > _MAX_STEP_BYTES:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name} with {len(topic.partitions)} partitions and "
            f"{len(topic.configs)} configs takes {length} bytes in the metadata store, but at most "
            f"{_MAX_STEP_BYTES} fit; create several smaller topics",
        )
    return [first, *steps]
