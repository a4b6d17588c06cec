"""Topics that somebody has made in the tree, or given more partitions there: taken up as if it had
been asked for. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
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
from penstock.controller.znodes import REASSIGNMENTS, TopicZnode, encode_topic, topic_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId


def adopt_topics(
    state: ClusterState,
    found: Iterable[StoredTopic],
    unreadable: Iterable[UnreadableTopic],
    new_topic_id: Callable[[], TopicId],
) -> ControllerDecision:
    """The nodes that they lack, and their brokers' orders. What cannot be read is left alone."""
    made: dict[str, TopicState] = {}
    writes: list[WriteStep] = []
    for read in found:
        topic = to_topic_state(read, state.brokers, state.controller_epoch, new_topic_id)
        made[read.name] = topic
        writes += missing_znodes(read, topic)
    after = replace(
        state.with_topics(made.values()),
        unreadable=state.unreadable | {each.name for each in unreadable},
    )
    if not made:
        return ControllerDecision(state=after)
    numbers = {name: range(len(topic.partitions)) for name, topic in made.items()}
    orders = leader_and_isr_requests(after, numbers, brokers=after.brokers, is_new=True)
    return ControllerDecision(
        state=after,
        writes=tuple(writes),
        requests=orders + update_metadata_requests(after, topics=made),
    )


def add_edited_partitions(
    state: ClusterState, topic: TopicState, node: TopicZnode
) -> ControllerDecision:
    """The partitions that somebody has added to its node; Refusal of any other edit."""
    known = [each.replicas for each in topic.partitions]
    told = [node.replicas[number] for number in range(len(node.replicas))]
    if told[: len(known)] != known:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"only partitions can be added to {topic_path(topic.name)}; moves are asked for with "
            f"{REASSIGNMENTS}, and no partition can be taken away",
        )
    added = new_partitions(state, told[len(known) :])
    if not added:
        return ControllerDecision(state=state)
    grown = replace(topic, partitions=topic.partitions + added)
    after = state.with_topics([grown])
    numbers = range(len(known), len(told))
    orders = leader_and_isr_requests(
        after, {topic.name: numbers}, brokers=after.brokers, is_new=True
    )
    return ControllerDecision(
        state=after,
        writes=tuple(_growth(grown, numbers)),
        requests=orders + update_metadata_requests(after, topics=[topic.name]),
    )


def _growth(topic: TopicState, numbers: range) -> Iterator[WriteStep]:
    """The node as well: whoever edited it may have left out the topic's id."""
    data = encode_topic(topic.topic_id, topic.partitions)
    yield (SetData(path=topic_path(topic.name), data=data),)
    for number in numbers:
        yield partition_creation(topic.name, number, topic.partitions[number])
