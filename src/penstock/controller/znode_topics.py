"""Topics that a tool created or extended by writing znodes: adopted as if requested. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.controller.controller_requests import (
    leader_and_isr_requests,
    update_metadata_requests,
)
from penstock.controller.new_partitions import new_partitions, partition_creation
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.state_loader import (
    StoredTopic,
    UnreadableTopic,
    missing_znodes,
    to_topic_state,
)
from penstock.controller.znodes import (
    REASSIGNMENTS,
    TopicZnode,
    encode_topic,
    topic_config_path,
    topic_path,
)
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId


def adopt_topics(
    state: ClusterState,
    stored: Sequence[StoredTopic],
    unreadable: Iterable[UnreadableTopic],
    new_topic_id: Callable[[], TopicId],
) -> ControllerDecision:
    """Create their missing znodes and notify brokers. Unreadable topics are only recorded."""
    adopted: dict[str, TopicState] = {}
    writes: list[WriteStep] = []
    for read in stored:
        topic = to_topic_state(read, state.brokers, state.controller_epoch, new_topic_id)
        adopted[read.name] = topic
        writes += missing_znodes(read, topic)
    after = replace(
        state.with_topics(adopted.values()),
        unreadable=state.unreadable | {topic.name for topic in unreadable},
        refused_configs=state.refused_configs.union(
            topic_config_path(read.name) for read in stored if read.config_problem
        ),
    )
    if not adopted:
        return ControllerDecision(state=after)
    numbers = {name: range(len(topic.partitions)) for name, topic in adopted.items()}
    requests = leader_and_isr_requests(after, numbers, brokers=after.brokers, is_new=True)
    return ControllerDecision(
        state=after,
        writes=tuple(writes),
        requests=requests + update_metadata_requests(after, topics=adopted),
    )


def add_edited_partitions(
    state: ClusterState, topic: TopicState, node: TopicZnode
) -> ControllerDecision:
    """Create the partitions added to the topic's znode; Refusal for any other edit."""
    current = [partition.replicas for partition in topic.partitions]
    edited = [node.replicas[number] for number in range(len(node.replicas))]
    if edited[: len(current)] != current:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"only partitions can be added to {topic_path(topic.name)}; request a reassignment "
            f"with {REASSIGNMENTS}; partitions cannot be removed",
        )
    added = new_partitions(state, edited[len(current) :])
    if not added:
        return ControllerDecision(state=state)
    extended = replace(topic, partitions=topic.partitions + added)
    after = state.with_topics([extended])
    numbers = range(len(current), len(edited))
    requests = leader_and_isr_requests(
        after, {topic.name: numbers}, brokers=after.brokers, is_new=True
    )
    return ControllerDecision(
        state=after,
        writes=tuple(_writes(extended, numbers)),
        requests=requests + update_metadata_requests(after, topics=[topic.name]),
    )


def _writes(topic: TopicState, numbers: range) -> Iterator[WriteStep]:
    """The writes include the topic's znode, because the edit may have dropped the topic id."""
    data = encode_topic(topic.topic_id, topic.partitions)
    yield (SetData(path=topic_path(topic.name), data=data),)
    for number in numbers:
        yield partition_creation(topic.name, number, topic.partitions[number])
