"""Builds the group coordinator and keeps it informed of metadata changes.

Only translates; decides nothing about groups. Owned by the event loop.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import is_not

from penstock.config.cached_config import CachedConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.dependencies import TopicView
from penstock.coordinators.group.offsets.two_storages import TwoStorageGroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_offsets import ZooKeeperOffsets
from penstock.metadata_store.interface import Session
from penstock.model.cluster import OFFSETS_TOPIC, TopicState, UpdateMetadataRequest
from penstock.model.ids import TopicId
from penstock.replication.metadata_cache import MetadataCache
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import ReplicatedCoordinatorLog


def build_group_coordinator(
    context: BrokerContext, *, administration: CreatesTopics, session: Session
) -> GroupCoordinator:
    """Its task is running when this returns; `close` ends it."""
    config = CurrentGroupConfig(context)
    log = ReplicatedCoordinatorLog(
        OFFSETS_TOPIC,
        replication_factor="offsets.topic.replication.factor",
        administration=administration,
        context=context,
    )
    topics = MetadataTopics(context.metadata)
    coordinator = TwoStorageGroupCoordinator(
        store=ZooKeeperOffsets(session),
        log=log,
        topics=topics,
        timers=context.timers,
        wall_ms=context.wall_ms,
        config=config,
        logger=context.get_logger("group_coordinator"),
    )
    context.metadata.listen(_MetadataListener(coordinator, context).on_update)
    context.run_when_logs_ready(coordinator.run, "group-coordinator")
    return coordinator


class CurrentGroupConfig:
    """The broker's settings with those of single groups, as of now."""

    def __init__(self, context: BrokerContext) -> None:
        self._broker = CachedConfig(context.config, GroupConfig.from_broker)
        self._metadata = context.metadata
        self._read_from: tuple[object, object] | None = None
        self._config = self._broker()

    def __call__(self) -> GroupConfig:
        sources = self._broker(), self._metadata.group_configs
        if self._read_from is None or any(map(is_not, sources, self._read_from)):
            self._read_from = sources
            self._config = replace(sources[0], by_group=sources[1])
        return self._config


class _MetadataListener:
    """Passes on leadership of the offsets topic, deleted topics and changed topics."""

    def __init__(self, coordinator: GroupCoordinator, context: BrokerContext) -> None:
        self._coordinator = coordinator
        self._metadata = context.metadata
        self._topic_ids: dict[str, TopicId] = {  # as of the last update
            name: topic.topic_id for name, topic in context.metadata.topics.items()
        }
        self._leadership = CoordinatorLeadership(OFFSETS_TOPIC, coordinator, context)
        self._leadership.update()

    def on_update(self, update: UpdateMetadataRequest) -> None:
        self._leadership.update()
        deleted = self._note_topics(update)
        if deleted:
            self._coordinator.on_topics_deleted(deleted)
        if deleted or update.topics or update.is_full:
            self._coordinator.on_topics_changed()

    def _note_topics(self, update: UpdateMetadataRequest) -> list[str]:
        """Names whose topic was deleted, or deleted and created again with another id."""
        before, now = self._topic_ids, self._metadata.topics
        names = list(before) if update.is_full else [*update.deleted_topics]
        names += [topic.name for topic in update.topics if topic.name in before]
        deleted = [name for name in dict.fromkeys(names) if _is_deleted(before, name, now)]
        if update.is_full:
            before.clear()
        for name in deleted:
            before.pop(name, None)
        before.update({topic.name: topic.topic_id for topic in update.topics})
        return deleted


def _is_deleted(before: Mapping[str, TopicId], name: str, now: Mapping[str, TopicState]) -> bool:
    return name in before and (name not in now or now[name].topic_id != before[name])


class MetadataTopics:
    """The `Topics` of the group coordinator: what the metadata cache has."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def find(self, name: str) -> TopicView | None:
        topic = self._metadata.find_topic(name)
        return None if topic is None else TopicView(topic.topic_id, len(topic.partitions))

    def all(self) -> Mapping[str, TopicView]:
        return {
            name: TopicView(topic.topic_id, len(topic.partitions))
            for name, topic in self._metadata.topics.items()
        }

    def find_name(self, topic_id: TopicId) -> str | None:
        return self._metadata.find_name(topic_id)
