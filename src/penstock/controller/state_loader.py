"""Reads the controller's state from the metadata store after an election.

Reads go in batches, so that ZooKeeper answers many at once and the event loop is not blocked.
Writes nothing: completing what an earlier controller began is part of the decision.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from penstock.controller.config_resources import find_resource
from penstock.controller.new_partitions import new_partition, partition_creation
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.stored_configs import read_configs, unreadable_configs
from penstock.controller.topic_deletion import brokers_of
from penstock.controller.znodes import (
    BROKER_CONFIGS,
    BROKER_IDS,
    DELETIONS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPICS,
    TopicZnode,
    broker_path,
    decode_broker,
    decode_report,
    decode_state,
    decode_topic,
    deletion_path,
    encode_configs,
    encode_topic,
    partitions_path,
    report_path,
    state_path,
    topic_config_path,
    topic_path,
)
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.metadata_store.errors import DamagedZnode, NoNode
from penstock.metadata_store.interface import (
    Create,
    Delete,
    Session,
    SetData,
    Value,
    Watch,
)
from penstock.model.broker_report import BrokerReport
from penstock.model.cluster import (
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import InvalidTopicName, TopicId, TopicPartition, check_topic_name

READS_AT_ONCE = 500


Item = TypeVar("Item")


class StoredTopic(NamedTuple):
    """A topic's znodes; some may be missing if its creation was interrupted."""

    name: str
    node: TopicZnode
    partition_nodes: frozenset[int] | None  # None: not even their parent exists
    states: Mapping[int, PartitionState]
    written: Mapping[int, int]  # the mzxids of those states
    configs: Mapping[str, str] | None  # None: no znode
    config_problem: str = ""  # why its configs cannot be read; then they are the safe ones


class UnreadableTopic(NamedTuple):
    """A znode below /brokers/topics that is not a topic and never was one."""

    name: str
    why: str


class LoadWatches(NamedTuple):
    """Watches for changes after the read."""

    brokers: Watch | None = None
    topics: Watch | None = None
    deletions: Watch | None = None
    configs: Watch | None = None  # of topics


NO_WATCHES = LoadWatches()


class StoredState(NamedTuple):
    brokers: Mapping[BrokerId, BrokerNode]
    topics: Sequence[StoredTopic]
    unreadable: Sequence[UnreadableTopic]
    marked: Collection[str]  # for deletion
    configured: Collection[str]  # topics with a config znode
    broker_configs: Mapping[str, Mapping[str, str]]
    reports: Mapping[BrokerId, BrokerReport] = MappingProxyType({})  # of those brokers
    group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    damaged_configs: Mapping[str, str] = MappingProxyType({})  # of brokers and groups: path, why


class Registered(NamedTuple):
    """The registered brokers, and what some of them reported before."""

    brokers: dict[BrokerId, BrokerNode]
    reports: dict[BrokerId, BrokerReport]  # without empty ones


async def read_registered(
    session: Session,
    watch: Watch | None,
    logger: EventLogger = NO_LOGGER,
    before: Mapping[BrokerId, BrokerNode] = MappingProxyType({}),
) -> Registered:
    """The reports of brokers that have registered since `before`. A broker whose report cannot be
    read counts as not registered, because it may have lost its logs."""
    brokers = await read_brokers(session, watch, logger)
    registered = [broker for broker in brokers if brokers[broker] != before.get(broker)]
    values = await _find_all(session, [report_path(broker) for broker in registered])
    reports: dict[BrokerId, BrokerReport] = {}
    for broker, value in zip(registered, values, strict=True):
        try:
            if value is not None and (decoded := decode_report(broker, value)).replicas:
                reports[broker] = decoded
        except DamagedZnode as damaged:
            logger.warning(
                "registration_ignored", f"ignoring the registration of broker {broker}: {damaged}"
            )
            del brokers[broker]
    return Registered(brokers, reports)


async def read_brokers(
    session: Session, watch: Watch | None, logger: EventLogger = NO_LOGGER
) -> dict[BrokerId, BrokerNode]:
    """The registered brokers; `watch` fires when one registers or goes. An unreadable registration
    is reported and ignored, so that it does not affect the other brokers."""
    names = await session.children(BROKER_IDS, watch)
    brokers = [BrokerId(int(name)) for name in names if name.isdecimal()]
    values = await _find_all(session, [broker_path(broker) for broker in brokers])
    registered: dict[BrokerId, BrokerNode] = {}
    for broker, value in sorted(zip(brokers, values, strict=True)):
        try:
            if value is not None:  # None: gone meanwhile, and the watch fires
                registered[broker] = decode_broker(broker, value)
        except DamagedZnode as damaged:
            logger.warning(
                "registration_ignored", f"ignoring the registration of broker {broker}: {damaged}"
            )
    return registered


async def read_stored_state(
    session: Session, watches: LoadWatches = NO_WATCHES, logger: EventLogger = NO_LOGGER
) -> StoredState:
    names = await session.children(TOPICS, watches.topics)
    configured = await session.children(TOPIC_CONFIGS)
    topics, unreadable = await read_topics(session, names, watches.configs)
    damaged: dict[str, str] = {}
    registered = await read_registered(session, watches.brokers, logger)
    return StoredState(
        brokers=registered.brokers,
        topics=topics,
        unreadable=unreadable,
        marked=await session.children(DELETIONS, watches.deletions),
        configured=configured,
        broker_configs=await _read_all_configs(session, BROKER_CONFIGS, damaged),
        reports=registered.reports,
        group_configs=await _read_all_configs(session, GROUP_CONFIGS, damaged),
        damaged_configs=damaged,
    )


async def read_topics(
    session: Session, names: Sequence[str], watch_configs: Watch | None = None
) -> tuple[list[StoredTopic], list[UnreadableTopic]]:
    """The topics that exist. Tools create topics as znodes: one that cannot be read is left alone,
    but DamagedZnode is raised if it has partitions, because then it was in use."""
    values = await _find_all(session, [topic_path(name) for name in names])
    nodes: dict[str, TopicZnode] = {}
    unreadable: list[UnreadableTopic] = []
    for name, value in zip(names, values, strict=True):
        try:
            if value is not None:
                nodes[name] = decode_topic(check_topic_name(name), value.data)
        except (DamagedZnode, InvalidTopicName) as problem:
            if value is not None and value.stat.num_children:
                if isinstance(problem, InvalidTopicName):
                    raise DamagedZnode(topic_path(name), str(problem)) from None
                raise
            unreadable.append(UnreadableTopic(name, str(problem)))
    return await _read_topics(session, nodes, watch_configs), unreadable


async def read_topic_nodes(session: Session, names: Sequence[str]) -> dict[str, TopicZnode]:
    """The topics that exist and can be read; the controller reports the others."""
    nodes: dict[str, TopicZnode] = {}
    values = await _find_all(session, [topic_path(name) for name in names])
    for name, value in zip(names, values, strict=True):
        with suppress(DamagedZnode, InvalidTopicName):
            if value is not None:
                nodes[name] = decode_topic(check_topic_name(name), value.data)
    return nodes


async def read_topic_values(
    session: Session, names: Sequence[str], watch: Watch
) -> dict[str, Value]:
    """The znodes of those that exist, each with a watch for its next change."""
    values = await _find_all(session, [topic_path(name) for name in names], watch)
    named = zip(names, values, strict=True)
    return {name: value for name, value in named if value is not None}


async def find_topic_znodes(session: Session, topic: str) -> list[str]:
    """All znodes of a topic, its own first and parents before children."""
    existing: list[str] = []
    level = [topic_path(topic)]
    while level:
        children = await _children_of_all(session, level)
        existing += (path for path, names in zip(level, children, strict=True) if names is not None)
        level = [
            f"{path}/{name}"
            for path, names in zip(level, children, strict=True)
            for name in names or ()
        ]
    for path in (topic_config_path(topic), deletion_path(topic)):
        if await session.exists(path) is not None:
            existing.append(path)
    return existing


def repair(
    stored: StoredState,
    *,
    controller_id: BrokerId,
    controller_epoch: ControllerEpoch,
    new_topic_id: Callable[[], TopicId],
) -> ControllerDecision:
    """The stored state, and the writes that complete what an earlier controller began."""
    topics: dict[str, TopicState] = {}
    writes: list[WriteStep] = []
    for read in stored.topics:
        topics[read.name] = to_topic_state(read, stored.brokers, controller_epoch, new_topic_id)
        if read.name not in stored.marked:
            writes += missing_znodes(read, topics[read.name])
    writes += _orphans(stored, topics)
    deleting = {name: brokers_of(topics[name]) for name in stored.marked if name in topics}
    state = ClusterState(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=stored.brokers,
        topics=topics,
        deleting=deleting,
        broker_configs=stored.broker_configs,
        group_configs=stored.group_configs,
        reports=stored.reports,
        unreadable=frozenset(topic.name for topic in stored.unreadable),
        refused_configs=frozenset(
            (
                *stored.damaged_configs,
                *(topic_config_path(topic.name) for topic in stored.topics if topic.config_problem),
            )
        ),
    )
    return ControllerDecision(state=state, writes=tuple(writes))


def find_restarted(stored: StoredState) -> dict[TopicPartition, frozenset[BrokerId]]:
    """Members of an ISR whose broker registered after the partition's state was written.

    An active controller writes a partition's state again when a member of its ISR restarts; if it
    did not, no controller was active then. A single replica has no other to diverge from.
    """
    restarted: dict[TopicPartition, frozenset[BrokerId]] = {}
    newest = max((node.epoch for node in stored.brokers.values()), default=0)
    for read in stored.topics:
        for number, zxid in read.written.items():
            state = read.states[number]
            if zxid > newest or len(state.replicas) < 2:
                continue
            brokers = frozenset(
                broker for broker in state.in_sync if _registered_after(stored, broker, zxid)
            )
            if brokers:
                restarted[TopicPartition(read.name, number)] = brokers
    return restarted


def _registered_after(stored: StoredState, broker: BrokerId, zxid: int) -> bool:
    return broker in stored.brokers and stored.brokers[broker].epoch > zxid


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
    """The znodes that the topic's znode implies and that do not exist yet."""
    if read.node.topic_id is None:
        data = encode_topic(topic.topic_id, topic.partitions)
        yield (SetData(path=topic_path(topic.name), data=data),)
    if read.configs is None:
        yield (Create(path=topic_config_path(topic.name), data=encode_configs({})),)
    if read.partition_nodes is None:
        yield (Create(path=partitions_path(topic.name)),)
    existing = read.partition_nodes or frozenset()
    for number, partition in enumerate(topic.partitions):
        if number not in read.states:
            creation = partition_creation(topic.name, number, partition)
            yield creation[1:] if number in existing else creation


def _orphans(stored: StoredState, topics: Collection[str]) -> Iterator[WriteStep]:
    """Configs and deletion marks without a topic would apply to the next topic of that name."""
    yield from (
        (Delete(path=topic_config_path(name)),) for name in stored.configured if name not in topics
    )
    yield from ((Delete(path=deletion_path(name)),) for name in stored.marked if name not in topics)


async def _read_topics(
    session: Session, nodes: Mapping[str, TopicZnode], watch_configs: Watch | None
) -> list[StoredTopic]:
    names = list(nodes)
    children = await _children_of_all(session, [partitions_path(name) for name in names])
    paths = [topic_config_path(name) for name in names]
    configs = await read_configs(session, paths, watch_configs)
    states, written = await _read_states(session, nodes)
    return [
        StoredTopic(
            name,
            nodes[name],
            None if numbers is None else frozenset(int(n) for n in numbers if n.isdecimal()),
            states[name],
            written[name],
            unreadable_configs(name) if stored.problem else stored.configs,
            stored.problem,
        )
        for name, numbers, stored in zip(names, children, configs, strict=True)
    ]


async def _read_states(
    session: Session, nodes: Mapping[str, TopicZnode]
) -> tuple[dict[str, dict[int, PartitionState]], dict[str, dict[int, int]]]:
    states: dict[str, dict[int, PartitionState]] = {name: {} for name in nodes}
    written: dict[str, dict[int, int]] = {name: {} for name in nodes}
    keys = [(name, number) for name, node in nodes.items() for number in node.replicas]
    for chunk in _chunks(keys):
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


async def _read_all_configs(
    session: Session, parent: str, damaged: dict[str, str]
) -> dict[str, Mapping[str, str]]:
    """By the names of brokers or groups; what is wrong with the others goes into `damaged`."""
    paths = [f"{parent}/{name}" for name in await session.children(parent)]
    by_name: dict[str, Mapping[str, str]] = {}
    for path, stored in zip(paths, await read_configs(session, paths), strict=True):
        resource = find_resource(path)
        if stored.problem:
            damaged[path] = stored.problem
        elif stored.configs is not None and resource is not None:
            by_name[resource.name] = stored.configs
    return by_name


async def _find_all(
    session: Session, paths: Sequence[str], watch: Watch | None = None
) -> list[Value | None]:
    async def find(path: str) -> Value | None:
        try:
            return await session.get(path, watch)
        except NoNode:
            return None

    values: list[Value | None] = []
    for chunk in _chunks(paths):
        values += await asyncio.gather(*map(find, chunk))
    return values


async def _children_of_all(session: Session, paths: Sequence[str]) -> list[tuple[str, ...] | None]:
    async def find(path: str) -> tuple[str, ...] | None:
        try:
            return await session.children(path)
        except NoNode:
            return None

    children: list[tuple[str, ...] | None] = []
    for chunk in _chunks(paths):
        children += await asyncio.gather(*map(find, chunk))
    return children


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[at : at + READS_AT_ONCE] for at in range(0, len(items), READS_AT_ONCE))
