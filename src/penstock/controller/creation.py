"""Topics and partitions that are asked for: what is refused and why, and how the rest is made.

Pure. A topic is in the tree from its first step on; should the steps end there, the partitions
that its node names and that have no state yet are made by whoever reads it next.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from penstock.config.given import ConfigError, Given
from penstock.config.resolve import Resolved, resolve_topic
from penstock.controller.assignment import assign_replicas
from penstock.controller.interface import MorePartitions, NewTopic, Refused
from penstock.controller.internal_topics import fill_in, find_conflict
from penstock.controller.orders import roles, tell
from penstock.controller.state import ClusterState, Decision, Writes
from penstock.controller.writes import request_bytes
from penstock.controller.znodes import (
    encode_configs,
    encode_state,
    encode_topic,
    partition_path,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from penstock.coordination.interface import (
    MAX_REQUEST_BYTES,
    Create,
    SetData,
)
from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, PartitionState, TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import InvalidTopicName, LeaderEpoch, TopicId, check_topic_name

# As Kafka's newer controllers: one request must not keep everybody else waiting.
MAX_PARTITIONS_PER_REQUEST = 10_000
_MAX_STEP_BYTES = MAX_REQUEST_BYTES - 1024  # beside it stands the fence

MAX_MESSAGE_LENGTH = 1000

_FIRST_EPOCH = LeaderEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a creation needs beside the state: settings as of now, and chance."""

    settings: Resolved
    random: Random
    new_topic_id: Callable[[], TopicId]
    max_partitions: int = MAX_PARTITIONS_PER_REQUEST  # in one request
    left_partitions: int = MAX_PARTITIONS_PER_REQUEST  # of those, for the part at hand


Created = tuple[Decision, list[TopicState | Refused]]
Grown = tuple[Decision, list[Refused | None]]


def create_topics(
    state: ClusterState, asked: Sequence[NewTopic], means: Means, *, twice: Collection[str] = ()
) -> Created:
    """Each topic or why not, and what makes those that may be; `twice`: named so in the request."""
    plan = _Plan(state, means)
    answers: list[TopicState | Refused] = []
    for topic in asked:
        try:
            _refuse_twice(topic.name, twice)
            made = _new_topic(plan.state, topic, means)
            plan.count(len(made.partitions))
            plan.add(made, _checked(made, _creation(made)), range(len(made.partitions)))
            answers.append(made)
        except Refusal as refusal:
            answers.append(refused(refusal))
    return plan.decision(), answers


def create_partitions(
    state: ClusterState,
    asked: Sequence[MorePartitions],
    means: Means,
    *,
    twice: Collection[str] = (),
) -> Grown:
    plan = _Plan(state, means)
    answers: list[Refused | None] = []
    for more in asked:
        try:
            _refuse_twice(more.name, twice)
            before = _topic_to_grow(plan.state, more)
            plan.count(more.total - len(before.partitions))
            grown = _grown(plan.state, before, more)
            added = range(len(before.partitions), more.total)
            plan.add(grown, _checked(grown, _growth(grown, added)), added)
            answers.append(None)
        except Refusal as refusal:
            answers.append(refused(refusal))
    return plan.decision(), answers


def refused(refusal: Refusal) -> Refused:
    message = refusal.message or refusal.code.message
    if len(message) > MAX_MESSAGE_LENGTH:  # what was asked for may be quoted, whatever its size
        message = f"{message[:MAX_MESSAGE_LENGTH]}..."
    return Refused(refusal.code, message)


def invalid_config(error: ConfigError) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, "; ".join(error.problems))


def new_partition(
    replicas: tuple[BrokerId, ...], *, live: Container[BrokerId], epoch: ControllerEpoch
) -> PartitionState:
    """Empty everywhere, so that any live replica may lead; if none lives, whichever comes first."""
    in_sync = tuple(broker for broker in replicas if broker in live)
    return PartitionState(
        leader=in_sync[0] if in_sync else NO_BROKER,
        leader_epoch=_FIRST_EPOCH,
        replicas=replicas,
        in_sync=in_sync or replicas,
        partition_epoch=0,
        controller_epoch=epoch,
    )


def partition_creation(topic: str, number: int, partition: PartitionState) -> Writes:
    return (
        Create(path=partition_path(topic, number)),
        Create(path=state_path(topic, number), data=encode_state(partition)),
    )


class _Plan:
    """A request as it is decided, topic by topic."""

    def __init__(self, state: ClusterState, means: Means) -> None:
        self.state = state
        self._left = means.left_partitions
        self._limit = means.max_partitions
        self._writes: list[Writes] = []
        self._new: dict[str, range] = {}

    def count(self, partitions: int) -> None:
        if partitions > self._left:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"one request may create at most {self._limit} partitions; ask for them in several",
            )
        self._left -= partitions

    def add(self, topic: TopicState, writes: Iterable[Writes], new: range) -> None:
        self.state = self.state.with_topics([topic])
        self._writes += writes
        self._new[topic.name] = new

    def decision(self) -> Decision:
        if not self._new:
            return Decision(state=self.state)
        orders = roles(self.state, self._new, brokers=self.state.brokers, is_new=True)
        orders += tell(self.state, topics=self._new)
        return Decision(state=self.state, writes=tuple(self._writes), orders=orders)


# New topics.


def _new_topic(state: ClusterState, asked: NewTopic, means: Means) -> TopicState:
    _check_name(state, asked.name)
    asked = fill_in(asked, means.settings)
    assignment = _given_assignment(state, asked) or _chosen_assignment(state, asked, means)
    return TopicState(
        name=asked.name,
        topic_id=means.new_topic_id(),
        partitions=_new_partitions(state, assignment),
        configs=_checked_configs(asked, means.settings),
    )


def _check_name(state: ClusterState, name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if name in state.deleting:
        raise Refusal(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"topic {name} is being deleted; create it again when that is done",
        )
    if name in state.topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    collides = _find_collision(state, name)
    if collides is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} collides with {collides}: metrics cannot tell . from _ in names",
        )


def _find_collision(state: ClusterState, name: str) -> str | None:
    if re.search(r"[._]", name) is None:
        return None
    flat = name.replace(".", "_")
    return next((each for each in state.topics if each.replace(".", "_") == flat), None)


def _chosen_assignment(
    state: ClusterState, asked: NewTopic, means: Means
) -> list[tuple[BrokerId, ...]]:
    partitions = _or_default(asked.partitions, means.settings["num.partitions"])
    factor = _or_default(asked.replication_factor, means.settings["default.replication.factor"])
    if partitions < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {asked.name} cannot have {partitions} partitions; ask for at least 1, or for "
            f"-1 to get the broker's num.partitions",
        )
    if partitions > means.max_partitions:  # before anything is made of that size
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {means.max_partitions} partitions, not {partitions}",
        )
    _check_factor(factor, state)
    brokers = list(state.brokers.values())
    return assign_replicas(
        brokers,
        partitions=partitions,
        replication_factor=factor,
        start=means.random.randrange(len(brokers)),
        shift=means.random.randrange(len(brokers)),
    )


def _or_default(asked: int, default: object) -> int:
    assert isinstance(default, int)
    return default if asked == -1 else asked


def _check_factor(factor: int, state: ClusterState) -> None:
    if not 1 <= factor <= len(state.brokers):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is not possible: {len(state.brokers)} broker(s) are "
            f"alive, and each holds one replica",
        )


def _given_assignment(state: ClusterState, asked: NewTopic) -> list[tuple[BrokerId, ...]]:
    given = asked.assignment
    if not given:
        return []
    if asked.partitions != -1 or asked.replication_factor != -1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"topic {asked.name} has an assignment, and numbers of partitions or replicas beside "
            f"it; give one or the other",
        )
    if sorted(given) != list(range(len(given))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {asked.name}: partitions must count up from 0 without a gap, not "
            f"{sorted(given)[:20]}",
        )
    replicas = [given[number] for number in range(len(given))]
    _check_replicas(state, asked.name, replicas, factor=len(replicas[0]), first=0)
    return replicas


def _check_replicas(
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
    if len(brokers) != factor:
        return f"has {len(brokers)} replicas, where the others have {factor}"
    return None


def _new_partitions(
    state: ClusterState, assignment: Iterable[tuple[BrokerId, ...]]
) -> tuple[PartitionState, ...]:
    epoch = state.controller_epoch
    return tuple(new_partition(each, live=state.brokers, epoch=epoch) for each in assignment)


def _checked_configs(asked: NewTopic, settings: Resolved) -> Mapping[str, str]:
    missing = [name for name, text in asked.configs.items() if text is None]
    if missing:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{', '.join(missing)} has no value; leave it out instead"
        )
    configs = {name: text for name, text in asked.configs.items() if text is not None}
    check_topic_configs(asked.name, configs, settings)
    return configs


def check_topic_configs(topic: str, configs: Mapping[str, str], settings: Resolved) -> Resolved:
    try:
        resolved = resolve_topic(Given.from_mapping(configs, where=f"topic {topic}"), settings)
    except ConfigError as error:
        raise invalid_config(error) from None
    conflict = find_conflict(topic, resolved)
    if conflict is not None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic}: {conflict}")
    return resolved


def _checked(topic: TopicState, steps: Iterator[Writes]) -> list[Writes]:
    """The steps, of which the first has the topic's node, and must fit one request."""
    first = next(steps)
    length = sum(map(request_bytes, first))
    if length > _MAX_STEP_BYTES:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name} with {len(topic.partitions)} partitions and "
            f"{len(topic.configs)} settings takes {length} bytes in the tree, where at most "
            f"{_MAX_STEP_BYTES} fit; make several smaller topics",
        )
    return [first, *steps]


def _creation(topic: TopicState) -> Iterator[Writes]:
    yield (
        Create(path=topic_config_path(topic.name), data=encode_configs(topic.configs)),
        Create(path=topic_path(topic.name), data=encode_topic(topic.topic_id, topic.partitions)),
        Create(path=partitions_path(topic.name)),
    )
    for number, partition in enumerate(topic.partitions):
        yield partition_creation(topic.name, number, partition)


# Topics that grow.


def _topic_to_grow(state: ClusterState, more: MorePartitions) -> TopicState:
    topic = state.find_topic(more.name)
    if topic is None:
        raise unknown_topic(state, more.name)
    if any(each.adding or each.removing for each in topic.partitions):
        raise Refusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"topic {more.name} is being reassigned; add partitions when that is done",
        )
    if more.total <= len(topic.partitions):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {more.name} has {len(topic.partitions)} partitions; {more.total} would not be "
            f"more, and a topic cannot shrink",
        )
    return topic


def unknown_topic(state: ClusterState, name: str) -> Refusal:
    why = "is being deleted" if name in state.deleting else "does not exist"
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:249]!r} {why}")


def _grown(state: ClusterState, topic: TopicState, more: MorePartitions) -> TopicState:
    first = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    assignment = (
        _chosen_growth(state, topic, more.total - first, factor)
        if more.assignment is None
        else _given_growth(state, topic, more, factor)
    )
    added = _new_partitions(state, assignment)
    return replace(topic, partitions=topic.partitions + added)


def _chosen_growth(
    state: ClusterState, topic: TopicState, count: int, factor: int
) -> list[tuple[BrokerId, ...]]:
    _check_factor(factor, state)
    brokers = list(state.brokers.values())
    # Go on where partition 0 began, as far as the brokers are still the same.
    start = sum(1 for broker in state.brokers if broker < topic.partitions[0].replicas[0])
    return assign_replicas(
        brokers,
        partitions=count,
        replication_factor=factor,
        start=start,
        shift=start,
        first_partition=len(topic.partitions),
    )


def _given_growth(
    state: ClusterState, topic: TopicState, more: MorePartitions, factor: int
) -> Sequence[tuple[BrokerId, ...]]:
    assert more.assignment is not None
    first = len(topic.partitions)
    if len(more.assignment) != more.total - first:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {more.name} gets {more.total - first} more partitions, but "
            f"{len(more.assignment)} are assigned; assign each of the added ones",
        )
    _check_replicas(state, more.name, more.assignment, factor=factor, first=first)
    return more.assignment


def _growth(topic: TopicState, added: range) -> Iterator[Writes]:
    data = encode_topic(topic.topic_id, topic.partitions)
    yield (SetData(path=topic_path(topic.name), data=data),)
    for number in added:
        yield partition_creation(topic.name, number, topic.partitions[number])


# Names.


def named_twice(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _refuse_twice(name: str, twice: Collection[str]) -> None:
    if name in twice:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"topic {name[:249]} is named more than once in the request"
        )
