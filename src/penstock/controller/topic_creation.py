"""CreateTopics: validates each topic, assigns its replicas and creates its znodes. Pure."""

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
    topics: Sequence[CreatableTopic],
    dependencies: CreationDependencies,
    *,
    duplicates: Collection[str] = (),
) -> TopicsCreated:
    """Each topic's state, or its error. `duplicates`: names that occur twice in the request."""
    plan = CreationPlan(state, dependencies)
    results: list[TopicState | ApiError] = []
    for topic in topics:
        try:
            check_named_once(topic.name, duplicates)
            created = _new_topic(plan.state, topic, dependencies)
            plan.reserve(len(created.partitions))
            plan.add(
                created, checked_writes(created, _writes(created)), range(len(created.partitions))
            )
            results.append(created)
        except Refusal as refusal:
            results.append(to_api_error(refusal))
    return plan.decision(), results


def _new_topic(
    state: ClusterState, topic: CreatableTopic, dependencies: CreationDependencies
) -> TopicState:
    _check_name(state, topic.name)
    topic = fill_in_defaults(topic, dependencies.broker_config)
    assignment = _checked_assignment(state, topic) or _assigned(state, topic, dependencies)
    return TopicState(
        name=topic.name,
        topic_id=dependencies.new_topic_id(),
        partitions=new_partitions(state, assignment),
        configs=_checked_configs(topic, dependencies.broker_config),
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
            f"{topic_path(name)} exists, but cannot be read; delete or repair the znode",
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
    return next((other for other in state.topics if other.replace(".", "_") == flat), None)


def _assigned(
    state: ClusterState, topic: CreatableTopic, dependencies: CreationDependencies
) -> list[tuple[BrokerId, ...]]:
    config = dependencies.broker_config
    partitions, factor = topic.partitions, topic.replication_factor
    partitions = config.get_int("num.partitions") if partitions == -1 else partitions
    factor = config.get_int("default.replication.factor") if factor == -1 else factor
    if partitions < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} cannot have {partitions} partitions; request at least 1, or -1 "
            f"for the broker's num.partitions",
        )
    if partitions > dependencies.max_partitions:  # before anything of that size is built
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {dependencies.max_partitions} partitions, "
            f"not {partitions}",
        )
    check_factor(factor, state)
    brokers = list(state.brokers.values())
    return assign_replicas(
        brokers,
        partitions=partitions,
        replication_factor=factor,
        start=dependencies.random.randrange(len(brokers)),
        shift=dependencies.random.randrange(len(brokers)),
    )


def _checked_assignment(state: ClusterState, topic: CreatableTopic) -> list[tuple[BrokerId, ...]]:
    assignment = topic.assignment
    if not assignment:
        return []
    if topic.partitions != -1 or topic.replication_factor != -1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name} has an assignment, but also a number of partitions or replicas; "
            f"give one or the other",
        )
    if sorted(assignment) != list(range(len(assignment))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name}: partitions must count up from 0 without a gap, not "
            f"{sorted(assignment)[:20]}",
        )
    replicas = [assignment[number] for number in range(len(assignment))]
    check_replicas(state, topic.name, replicas, factor=len(replicas[0]), first=0)
    return replicas


def _checked_configs(topic: CreatableTopic, broker_config: EffectiveConfig) -> Mapping[str, str]:
    missing = [name for name, text in topic.configs.items() if text is None]
    if missing:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{', '.join(missing)} has no value; leave it out instead"
        )
    configs = {name: text for name, text in topic.configs.items() if text is not None}
    check_topic_configs(topic.name, configs, broker_config)
    return configs


def _writes(topic: TopicState) -> Iterator[WriteStep]:
    yield (
        Create(path=topic_config_path(topic.name), data=encode_configs(topic.configs)),
        Create(path=topic_path(topic.name), data=encode_topic(topic.topic_id, topic.partitions)),
        Create(path=partitions_path(topic.name)),
    )
    for number, partition in enumerate(topic.partitions):
        yield partition_creation(topic.name, number, partition)
