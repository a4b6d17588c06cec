"""Topics that somebody has made in the tree: taken up as if they had been asked for. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.controller.load import TopicRead, Unreadable, missing_nodes, topic_of
from penstock.controller.orders import roles, tell
from penstock.controller.state import ClusterState, Decision, Writes
from penstock.model.cluster import TopicState
from penstock.model.ids import TopicId


def take_up_topics(
    state: ClusterState,
    found: Iterable[TopicRead],
    unreadable: Iterable[Unreadable],
    new_topic_id: Callable[[], TopicId],
) -> Decision:
    """The nodes that they lack, and their brokers' orders. What cannot be read is left alone."""
    made: dict[str, TopicState] = {}
    writes: list[Writes] = []
    for read in found:
        topic = topic_of(read, state.brokers, state.controller_epoch, new_topic_id)
        made[read.name] = topic
        writes += missing_nodes(read, topic)
    after = replace(
        state.with_topics(made.values()),
        unreadable=state.unreadable | {each.name for each in unreadable},
    )
    if not made:
        return Decision(state=after)
    numbers = {name: range(len(topic.partitions)) for name, topic in made.items()}
    orders = roles(after, numbers, brokers=after.brokers, is_new=True)
    return Decision(state=after, writes=tuple(writes), orders=orders + tell(after, topics=made))
