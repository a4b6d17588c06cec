"""Topics that go: marked first, then their data on every broker, then the tree, then the metadata.

Pure. From the mark on a deletion ends only by being finished, whoever is the controller by then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.controller.broker_changes import stop_deleted_requests, unpublish_deleted
from penstock.controller.controller_requests import update_metadata_requests
from penstock.controller.interface import ApiError
from penstock.controller.refusals import to_api_error, unknown_topic
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import deletion_path, topic_config_path
from penstock.metadata_store.interface import Create, Delete
from penstock.model.cluster import BrokerId, TopicState
from penstock.model.errors import ErrorCode, Refusal


def delete_topics(
    state: ClusterState, names: Sequence[str], *, is_enabled: bool, is_marked: bool = False
) -> tuple[ControllerDecision, list[ApiError | None]]:
    """The mark, and the orders to remove the data; None: it is being deleted from now on.

    `is_marked`: whoever wants it has made the mark in the tree.
    """
    answers: list[ApiError | None] = []
    marked: dict[str, frozenset[BrokerId]] = {}
    for name in names:
        try:
            _check_deletable(state, name, is_enabled)
            answers.append(None)
            if name not in state.deleting:
                marked[name] = brokers_of(state.topics[name])
        except Refusal as refusal:
            answers.append(to_api_error(refusal))
    after = replace(state, deleting={**state.deleting, **marked})
    unmarked = () if is_marked else tuple(marked)
    writes: list[WriteStep] = [(Create(path=deletion_path(name)),) for name in unmarked]
    decision = ControllerDecision(
        state=after, writes=tuple(writes), requests=stop_deleted_requests(after, marked)
    )
    return decision.then(unpublish_deleted(after, before=state)), answers


def replicas_deleted(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> ControllerDecision:
    """A broker has nothing of these any more."""
    rest = {name: state.deleting[name] - {broker} for name in topics if name in state.deleting}
    after = replace(state, deleting={**state.deleting, **rest})
    return unpublish_deleted(after, before=state)


def find_deletable(state: ClusterState) -> list[str]:
    """Topics of which no broker has any data."""
    return [name for name, waiting in state.deleting.items() if not waiting]


def remove_topics(state: ClusterState, found: Mapping[str, Sequence[str]]) -> ControllerDecision:
    """With the nodes that each topic has, parents first: a deletion may have been cut short."""
    after = replace(
        state,
        topics={name: each for name, each in state.topics.items() if name not in found},
        deleting={name: each for name, each in state.deleting.items() if name not in found},
        # Another topic of that name has logs of its own.
        failed={name: each for name, each in state.failed.items() if name.topic not in found},
    )
    writes = [step for name, paths in found.items() for step in _removal(name, paths)]
    orders = update_metadata_requests(
        after, deleted=found, with_failed=after.failed != state.failed
    )
    return ControllerDecision(state=after, writes=tuple(writes), requests=orders)


def brokers_of(topic: TopicState) -> frozenset[BrokerId]:
    return frozenset(broker for each in topic.partitions for broker in each.replicas)


def _removal(name: str, paths: Sequence[str]) -> Iterable[WriteStep]:
    # Each alone, children first; the settings and the mark go with the topic's own node.
    marks = {topic_config_path(name), deletion_path(name)}
    own = [path for path in paths if path not in marks]
    for path in reversed(own[1:]):
        yield (Delete(path=path),)
    yield tuple(Delete(path=path) for path in (*own[:1], *sorted(marks & set(paths))))


def _check_deletable(state: ClusterState, name: str, is_enabled: bool) -> None:
    if not is_enabled:
        raise Refusal(
            ErrorCode.TOPIC_DELETION_DISABLED,
            "topics cannot be deleted here: delete.topic.enable is false in the broker's file",
        )
    if name not in state.topics:
        raise unknown_topic(state, name)
