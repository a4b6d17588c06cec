"""Topics that are asked for: what is refused and why, and how the rest is made. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from penstock.config.effective_config import EffectiveConfig
from penstock.controller.interface import ApiError, CreatableTopic
from penstock.controller.internal_topics import fill_in_defaults
from penstock.controller.new_partitions import (
    CreationDependencies,
    CreationPlan,
    check_factor,
    check_replicas,
    checked_writes,
    new_partitions,
    partition_creation,
)
from penstock.controller.refusals import check_named_once, check_topic_configs, to_api_error
from penstock.controller.replica_assignment import assign_replicas
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import (
    encode_configs,
    encode_topic,
    partitions_path,
    topic_config_path,
    topic_path,
)
from penstock.metadata_store.interface import Create
from penstock.model.cluster import BrokerId, TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import InvalidTopicName, check_topic_name

TopicsCreated = tuple[ControllerDecision, list[TopicState | ApiError]]


def create_topics(
    state: ClusterState,
    asked: Sequence[CreatableTopic],
    means: CreationDependencies,
    *,
    twice: Collection[str] = (),
) -> TopicsCreated:
    """Each topic or why not, and what makes those that may be; `twice`: named so in the request."""
    plan = CreationPlan(state, means)
    answers: list[TopicState | ApiError] = []
    for topic in asked:
        try:
            check_named_once(topic.name, twice)
            made = _new_topic(plan.state, topic, means)
            plan.count(len(made.partitions))
            plan.add(made, checked_writes(made, _creation(made)), range(len(made.partitions)))
            answers.append(made)
        except Refusal as refusal:
            answers.append(to_api_error(refusal))
    return plan.decision(), answers


def _new_topic(
    state: ClusterState, asked: CreatableTopic, means: CreationDependencies
) -> TopicState:
    _check_name(state, asked.name)
    asked = fill_in_defaults(asked, means.settings)
    assignment = _given_assignment(state, asked) or _chosen_assignment(state, asked, means)
    return TopicState(
        name=asked.name,
        topic_id=means.new_topic_id(),
        partitions=new_partitions(state, assignment),
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
    if name in state.unreadable:
        raise Refusal(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"{topic_path(name)} stands in the tree and cannot be read; delete or repair it",
        )
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
    state: ClusterState, asked: CreatableTopic, means: CreationDependencies
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
    check_factor(factor, state)
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


def _given_assignment(state: ClusterState, asked: CreatableTopic) -> list[tuple[BrokerId, ...]]:
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
    check_replicas(state, asked.name, replicas, factor=len(replicas[0]), first=0)
    return replicas


def _checked_configs(asked: CreatableTopic, settings: EffectiveConfig) -> Mapping[str, str]:
    missing = [name for name, text in asked.configs.items() if text is None]
    if missing:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{', '.join(missing)} has no value; leave it out instead"
        )
    configs = {name: text for name, text in asked.configs.items() if text is not None}
    check_topic_configs(asked.name, configs, settings)
    return configs


def _creation(topic: TopicState) -> Iterator[WriteStep]:
    yield (
        Create(path=topic_config_path(topic.name), data=encode_configs(topic.configs)),
        Create(path=topic_path(topic.name), data=encode_topic(topic.topic_id, topic.partitions)),
        Create(path=partitions_path(topic.name)),
    )
    for number, partition in enumerate(topic.partitions):
        yield partition_creation(topic.name, number, partition)
