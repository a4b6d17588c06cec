"""Partitions that change together: the state after them, their writes, and who is told. Pure.

Each is written under the version that was known, its partition epoch: of two that change the same
partition, one fails.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.controller.controller_requests import roles, tell
from penstock.controller.state import ClusterState, ControllerDecision, Writes
from penstock.controller.znodes import encode_state, state_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import TopicPartition

Changes = Mapping[str, Mapping[int, PartitionState]]  # by topic and number; none of them empty


def changed_partitions(
    state: ClusterState, changes: Changes, *, brokers: Iterable[BrokerId] | None = None
) -> ControllerDecision:
    """Written, ordered to the brokers that hold them, and told to all; or to those named."""
    if not changes:
        return ControllerDecision(state=state)
    after = with_changes(state, changes)
    addressed = after.brokers if brokers is None else tuple(brokers)
    orders = roles(after, changes, brokers=addressed)
    orders += tell(after, brokers=addressed, topics=changes)
    return ControllerDecision(state=after, writes=tuple(state_writes(changes)), requests=orders)


def with_changes(state: ClusterState, changes: Changes) -> ClusterState:
    return state.with_topics(
        replace(
            state.topics[name],
            partitions=tuple(
                some.get(number, each) for number, each in enumerate(state.topics[name].partitions)
            ),
        )
        for name, some in changes.items()
    )


def state_writes(changes: Changes) -> Iterator[Writes]:
    for name, some in changes.items():
        for number, partition in some.items():
            yield (_state_write(name, number, partition),)


def by_topic(changed: Mapping[TopicPartition, PartitionState]) -> Changes:
    found: dict[str, dict[int, PartitionState]] = {}
    for (name, number), partition in changed.items():
        found.setdefault(name, {})[number] = partition
    return found


def _state_write(topic: str, number: int, partition: PartitionState) -> SetData:
    return SetData(
        path=state_path(topic, number),
        data=encode_state(partition),
        version=partition.partition_epoch - 1,
    )
