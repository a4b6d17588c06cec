"""DeleteTopics: mark in /admin/delete_topics, StopReplica on every broker, znodes, metadata.

Pure. Once marked, a deletion is always completed, by whichever controller is active.
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
    """Mark the topics and send StopReplica; None: the topic is being deleted from now on.

    `is_marked`: the mark exists already, because the request was made by creating it.
    """
    results: list[ApiError | None] = []
    marked: dict[str, frozenset[BrokerId]] = {}
    for name in names:
        try:
            _check_deletable(state, name, is_enabled)
            results.append(None)
            if name not in state.deleting:
                marked[name] = brokers_of(state.topics[name])
        except Refusal as refusal:
            results.append(to_api_error(refusal))
    after = replace(state, deleting={**state.deleting, **marked})
    unmarked = () if is_marked else tuple(marked)
    writes: list[WriteStep] = [(Create(path=deletion_path(name)),) for name in unmarked]
    decision = ControllerDecision(
        state=after, writes=tuple(writes), requests=stop_deleted_requests(after, marked)
    )
    return decision.then(unpublish_deleted(after, before=state)), results


def replicas_deleted(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> ControllerDecision:
    """A broker has deleted its replicas of these topics."""
    remaining = {name: state.deleting[name] - {broker} for name in topics if name in state.deleting}
    after = replace(state, deleting={**state.deleting, **remaining})
    return unpublish_deleted(after, before=state)


def find_deletable(state: ClusterState) -> list[str]:
    """Topics whose replicas all brokers have deleted."""
    return [name for name, brokers in state.deleting.items() if not brokers]


def remove_topics(state: ClusterState, znodes: Mapping[str, Sequence[str]]) -> ControllerDecision:
    """`znodes`: those that exist of each topic, parents first; an earlier removal may have deleted
    some of them."""
    after = replace(
        state,
        topics={name: topic for name, topic in state.topics.items() if name not in znodes},
        deleting={name: left for name, left in state.deleting.items() if name not in znodes},
        # A new topic of that name has other logs.
        failed={tp: brokers for tp, brokers in state.failed.items() if tp.topic not in znodes},
    )
    writes = [step for name, paths in znodes.items() for step in _removal(name, paths)]
    requests = update_metadata_requests(
        after, deleted=znodes, with_failed=after.failed != state.failed
    )
    return ControllerDecision(state=after, writes=tuple(writes), requests=requests)


def brokers_of(topic: TopicState) -> frozenset[BrokerId]:
    return frozenset(broker for partition in topic.partitions for broker in partition.replicas)


def _removal(name: str, paths: Sequence[str]) -> Iterable[WriteStep]:
    # One by one, children first; configs and mark go together with the topic's own znode.
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
