"""Joins the group coordinator to the rooms beside it: replicas, the cluster's view, the controller.

Only translates; decides nothing about groups. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping

from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import EffectiveConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.dependencies import TopicView
from penstock.coordinators.group.offsets.zookeeper_coordinator import ZooKeeperGroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_offsets import ZooKeeperOffsets
from penstock.metadata_store.interface import Session
from penstock.model.cluster import OFFSETS_TOPIC, BrokerId, TopicState, UpdateMetadataRequest
from penstock.model.ids import TopicId
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import LoopClock, ReplicatedCoordinatorLog


class Groups:
    """The group coordinator of this broker, told of every change that concerns it. `start` it."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        administration: CreatesTopics,
        session: Session,
        timers: LoopClock,
        settings: Callable[[], EffectiveConfig],
        wall_ms: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topic_ids: dict[str, TopicId] = {}  # as of the last update
        self._leading = CoordinatorLeadership(OFFSETS_TOPIC, broker_id, cluster)
        self.topics = ClusterTopics(cluster)
        config = CachedConfig(settings, GroupConfig.from_broker)
        log = ReplicatedCoordinatorLog(
            OFFSETS_TOPIC,
            replication_factor="offsets.topic.replication.factor",
            replicas=replicas,
            cluster=cluster,
            administration=administration,
            clock=timers,
            settings=settings,
            report=report,
        )
        in_tree = config().offsets_storage == "zookeeper"
        self.coordinator = (
            ZooKeeperGroupCoordinator(
                keeper=ZooKeeperOffsets(session),
                log=log,
                topics=self.topics,
                timers=timers,
                wall_ms=wall_ms,
                config=config,
                report=report,
            )
            if in_tree
            else GroupCoordinator(
                log=log,
                topics=self.topics,
                timers=timers,
                wall_ms=wall_ms,
                config=config,
                report=report,
            )
        )
        cluster.listen(self._on_update)
        self._topic_ids.update({name: each.topic_id for name, each in cluster.topics.items()})
        self._leading.tell(self.coordinator)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.coordinator.run(), name="groups")

    def stop(self) -> None:
        """Whoever waits for a group is sent elsewhere; before the server closes."""
        self.coordinator.close()

    # -- the cluster's changes -------------------------------------------------------------

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        self._leading.tell(self.coordinator)
        gone = self._note_topics(update)
        if gone:
            self.coordinator.on_topics_deleted(gone)
        if gone or update.topics or update.is_full:
            self.coordinator.on_topics_changed()

    def _note_topics(self, update: UpdateMetadataRequest) -> list[str]:
        """Names whose topic is not the one of before: deleted, or deleted and made anew."""
        known = self._topic_ids
        now = self._cluster.topics
        names = list(known) if update.is_full else [*update.deleted_topics]
        names += [each.name for each in update.topics if each.name in known]
        gone = [name for name in dict.fromkeys(names) if _is_another(known, name, now)]
        if update.is_full:
            known.clear()
        for name in gone:
            known.pop(name, None)
        known.update({each.name: each.topic_id for each in update.topics})
        return gone


def _is_another(known: Mapping[str, TopicId], name: str, now: Mapping[str, TopicState]) -> bool:
    return name in known and (name not in now or now[name].topic_id != known[name])


class ClusterTopics:
    """A `groups.Topics`."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster

    def find(self, name: str) -> TopicView | None:
        topic = self._cluster.find_topic(name)
        return None if topic is None else TopicView(topic.topic_id, len(topic.partitions))

    def all(self) -> Mapping[str, TopicView]:
        return {
            name: TopicView(topic.topic_id, len(topic.partitions))
            for name, topic in self._cluster.topics.items()
        }

    def find_name(self, topic_id: TopicId) -> str | None:
        return self._cluster.find_name(topic_id)
