"""The controller's state, read anew from the tree at each election, with what is half made there.

Reads go in batches, so that a tree behind a network answers many at once and the loop breathes.
Writes nothing itself: what must be finished is part of the decision.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.controller.new_partitions import new_partition, partition_creation
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.topic_deletion import brokers_of
from penstock.controller.znodes import (
    ALL_BROKERS,
    BROKER_CONFIGS,
    BROKER_IDS,
    DELETIONS,
    TOPIC_CONFIGS,
    TOPICS,
    DamagedZnode,
    TopicZnode,
    broker_path,
    decode_broker,
    decode_configs,
    decode_state,
    decode_topic,
    deletion_path,
    encode_configs,
    encode_topic,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.interface import (
    Create,
    Delete,
    Session,
    SetData,
    Value,
    Watch,
)
from penstock.model.cluster import (
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import InvalidTopicName, TopicId, TopicPartition, check_topic_name

READS_AT_ONCE = 500

Report = Callable[[str], None]

Place = TypeVar("Place")


def _say_nothing(message: str) -> None:
    pass


class StoredTopic(NamedTuple):
    """A topic as the tree has it, perhaps half made."""

    name: str
    node: TopicZnode
    partition_nodes: frozenset[int] | None  # None: not even their parent is there
    states: Mapping[int, PartitionState]
    written: Mapping[int, int]  # the zxids of those states
    configs: Mapping[str, str] | None  # None: no node


class UnreadableTopic(NamedTuple):
    """A node where a topic's should be, that is none and never was one."""

    name: str
    why: str


class LoadWatches(NamedTuple):
    """For what comes or goes after the read."""

    brokers: Watch | None = None
    topics: Watch | None = None
    deletions: Watch | None = None


NO_WATCHES = LoadWatches()


class StoredState(NamedTuple):
    brokers: Mapping[BrokerId, BrokerNode]
    topics: Sequence[StoredTopic]
    unreadable: Sequence[UnreadableTopic]
    marked: Collection[str]  # for deletion
    configured: Collection[str]  # topics with a node for settings
    broker_configs: Mapping[str, Mapping[str, str]]


async def read_brokers(
    session: Session, watch: Watch | None, report: Report = _say_nothing
) -> dict[BrokerId, BrokerNode]:
    """Those with a registration, and the watch for the next one that comes or goes. What cannot be
    read is no broker's: it must not stop those that are."""
    names = await session.children(BROKER_IDS, watch)
    brokers = [BrokerId(int(name)) for name in names if name.isdecimal()]
    values = await _find_all(session, [broker_path(broker) for broker in brokers])
    found: dict[BrokerId, BrokerNode] = {}
    for broker, value in sorted(zip(brokers, values, strict=True)):
        try:
            if value is not None:  # else gone since: the watch tells
                found[broker] = decode_broker(broker, value)
        except DamagedZnode as damaged:
            report(f"broker {broker} is taken for absent: {damaged}")
    return found


async def read_stored_state(
    session: Session, watches: LoadWatches = NO_WATCHES, report: Report = _say_nothing
) -> StoredState:
    names = await session.children(TOPICS, watches.topics)
    configured = await session.children(TOPIC_CONFIGS)
    topics, unreadable = await read_topics(session, names)
    return StoredState(
        brokers=await read_brokers(session, watches.brokers, report),
        topics=topics,
        unreadable=unreadable,
        marked=await session.children(DELETIONS, watches.deletions),
        configured=configured,
        broker_configs=await _read_broker_configs(session),
    )


async def read_topics(
    session: Session, names: Sequence[str]
) -> tuple[list[StoredTopic], list[UnreadableTopic]]:
    """Those that are there. People make topics by hand: what is none of it is not touched, but a
    topic that was in use and is damaged raises DamagedNode."""
    values = await _find_all(session, [topic_path(name) for name in names])
    nodes: dict[str, TopicZnode] = {}
    unreadable: list[UnreadableTopic] = []
    for name, value in zip(names, values, strict=True):
        try:
            if value is not None:
                nodes[name] = decode_topic(check_topic_name(name), value.data)
        except (DamagedZnode, InvalidTopicName) as problem:
            if value is not None and value.stat.num_children:
                raise
            unreadable.append(UnreadableTopic(name, str(problem)))
    return await _read_topics(session, nodes), unreadable


async def read_topic_values(
    session: Session, names: Sequence[str], watch: Watch
) -> dict[str, Value]:
    """The nodes of those that are there, each with a watch for its next change."""
    values = await _find_all(session, [topic_path(name) for name in names], watch)
    found = zip(names, values, strict=True)
    return {name: value for name, value in found if value is not None}


async def find_topic_znodes(session: Session, topic: str) -> list[str]:
    """Every node that a topic has, its own first and parents before children."""
    found: list[str] = []
    level = [topic_path(topic)]
    while level:
        children = await _children_of_all(session, level)
        there = [path for path, names in zip(level, children, strict=True) if names is not None]
        found += there
        level = [
            f"{path}/{name}"
            for path, names in zip(level, children, strict=True)
            for name in names or ()
        ]
    for path in (topic_config_path(topic), deletion_path(topic)):
        if await session.exists(path) is not None:
            found.append(path)
    return found


def repair(
    tree: StoredState,
    *,
    controller_id: BrokerId,
    controller_epoch: ControllerEpoch,
    new_topic_id: Callable[[], TopicId],
) -> ControllerDecision:
    """The state that the tree says, and the writes that finish what it has only begun."""
    topics: dict[str, TopicState] = {}
    writes: list[WriteStep] = []
    for read in tree.topics:
        topics[read.name] = to_topic_state(read, tree.brokers, controller_epoch, new_topic_id)
        if read.name not in tree.marked:
            writes += missing_znodes(read, topics[read.name])
    writes += _left_over(tree, topics)
    deleting = {name: brokers_of(topics[name]) for name in tree.marked if name in topics}
    state = ClusterState(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=tree.brokers,
        topics=topics,
        deleting=deleting,
        broker_configs=tree.broker_configs,
        unreadable=frozenset(each.name for each in tree.unreadable),
    )
    return ControllerDecision(state=state, writes=tuple(writes))


def find_restarted(tree: StoredState) -> dict[TopicPartition, frozenset[BrokerId]]:
    """Brokers that have registered since a partition's state was written, and are in sync by it.

    Every controller writes the state of a partition anew when somebody of its in-sync set comes
    back; where that is not so, there was none. A lone replica has nobody to differ from.
    """
    found: dict[TopicPartition, frozenset[BrokerId]] = {}
    newest = max((node.epoch for node in tree.brokers.values()), default=0)
    for read in tree.topics:
        for number, zxid in read.written.items():
            state = read.states[number]
            if zxid > newest or len(state.replicas) < 2:
                continue
            back = {each for each in state.in_sync if _came_after(tree, each, zxid)}
            if back:
                found[TopicPartition(read.name, number)] = frozenset(back)
    return found


def _came_after(tree: StoredState, broker: BrokerId, zxid: int) -> bool:
    return broker in tree.brokers and tree.brokers[broker].epoch > zxid


def to_topic_state(
    read: StoredTopic,
    live: Collection[BrokerId],
    epoch: ControllerEpoch,
    new_topic_id: Callable[[], TopicId],
) -> TopicState:
    return TopicState(
        name=read.name,
        topic_id=read.node.topic_id or new_topic_id(),
        partitions=_partitions(read, live, epoch),
        configs=dict(read.configs or {}),
    )


def _partitions(
    read: StoredTopic, live: Collection[BrokerId], epoch: ControllerEpoch
) -> tuple[PartitionState, ...]:
    replicas = read.node.replicas
    return tuple(
        read.states.get(number) or new_partition(replicas[number], live=live, epoch=epoch)
        for number in range(len(replicas))
    )


def missing_znodes(read: StoredTopic, topic: TopicState) -> Iterator[WriteStep]:
    """What a topic's node promises, and is not there yet."""
    if read.node.topic_id is None:
        data = encode_topic(topic.topic_id, topic.partitions)
        yield (SetData(path=topic_path(topic.name), data=data),)
    if read.configs is None:
        yield (Create(path=topic_config_path(topic.name), data=encode_configs({})),)
    if read.partition_nodes is None:
        yield (Create(path=partitions_path(topic.name)),)
    there = read.partition_nodes or frozenset()
    for number, partition in enumerate(topic.partitions):
        if number not in read.states:
            creation = partition_creation(topic.name, number, partition)
            yield creation[1:] if number in there else creation


def _left_over(tree: StoredState, topics: Collection[str]) -> Iterator[WriteStep]:
    """Settings and marks of no topic: they would fall upon the next one of the name."""
    yield from (
        (Delete(path=topic_config_path(name)),) for name in tree.configured if name not in topics
    )
    yield from ((Delete(path=deletion_path(name)),) for name in tree.marked if name not in topics)


async def _read_topics(session: Session, nodes: Mapping[str, TopicZnode]) -> list[StoredTopic]:
    names = list(nodes)
    children = await _children_of_all(session, [partitions_path(name) for name in names])
    configs = await _find_all(session, [topic_config_path(name) for name in names])
    states, written = await _read_states(session, nodes)
    return [
        StoredTopic(
            name,
            nodes[name],
            None if found is None else frozenset(int(n) for n in found if n.isdecimal()),
            states[name],
            written[name],
            None if config is None else decode_configs(topic_config_path(name), config.data),
        )
        for name, found, config in zip(names, children, configs, strict=True)
    ]


async def _read_states(
    session: Session, nodes: Mapping[str, TopicZnode]
) -> tuple[dict[str, dict[int, PartitionState]], dict[str, dict[int, int]]]:
    states: dict[str, dict[int, PartitionState]] = {name: {} for name in nodes}
    written: dict[str, dict[int, int]] = {name: {} for name in nodes}
    places = [(name, number) for name, node in nodes.items() for number in node.replicas]
    for chunk in _chunks(places):
        paths = [state_path(name, number) for name, number in chunk]
        for (name, number), path, value in zip(
            chunk, paths, await _find_all(session, paths), strict=True
        ):
            if value is not None:
                states[name][number] = _decode_state(path, value, nodes[name], number)
                written[name][number] = value.stat.mzxid
    return states, written


def _decode_state(path: str, value: Value, node: TopicZnode, number: int) -> PartitionState:
    return decode_state(
        path,
        value,
        replicas=node.replicas[number],
        adding=node.adding.get(number, ()),
        removing=node.removing.get(number, ()),
    )


async def _read_broker_configs(session: Session) -> dict[str, dict[str, str]]:
    names = await session.children(BROKER_CONFIGS)
    paths = [f"{BROKER_CONFIGS}/{name}" for name in names]
    values = await _find_all(session, paths)
    return {
        "" if name == ALL_BROKERS else name: decode_configs(path, value.data)
        for name, path, value in zip(names, paths, values, strict=True)
        if value is not None
    }


async def _find_all(
    session: Session, paths: Sequence[str], watch: Watch | None = None
) -> list[Value | None]:
    async def find(path: str) -> Value | None:
        try:
            return await session.get(path, watch)
        except NoNode:
            return None

    found: list[Value | None] = []
    for chunk in _chunks(paths):
        found += await asyncio.gather(*map(find, chunk))
    return found


async def _children_of_all(session: Session, paths: Sequence[str]) -> list[tuple[str, ...] | None]:
    async def find(path: str) -> tuple[str, ...] | None:
        try:
            return await session.children(path)
        except NoNode:
            return None

    found: list[tuple[str, ...] | None] = []
    for chunk in _chunks(paths):
        found += await asyncio.gather(*map(find, chunk))
    return found


def _chunks(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    return (places[at : at + READS_AT_ONCE] for at in range(0, len(places), READS_AT_ONCE))
