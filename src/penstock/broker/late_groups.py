"""The group coordinator, built when it is needed: its room is a sixth of what a start would load.

Needed is it by the first client that asks for a group, and by a broker that leads a partition of
the offsets topic, or that keeps offsets in the tree. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.model.cluster import OFFSETS_TOPIC, BrokerId, MetadataUpdate
from penstock.replication.cluster_view import ClusterView

if TYPE_CHECKING:
    from penstock.broker.group_wiring import Groups
    from penstock.handlers.group_service import GroupService


class LateGroups:
    """Make it before the first update of the cluster's view, `start` it before clients come."""

    def __init__(
        self, broker_id: BrokerId, cluster: ClusterView, build: "Callable[[], Groups]"
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._build = build
        self._built: Groups | None = None
        self._tasks: asyncio.TaskGroup | None = None
        cluster.listen(self._on_update)

    def get_service(self) -> "GroupService":
        return self.get().coordinator

    def get(self) -> "Groups":
        if self._built is None:
            self._built = self._build()
            if self._tasks is not None:
                self._built.start(self._tasks)
        return self._built

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        if self._built is not None:
            self._built.start(tasks)

    def stop(self) -> None:
        """Whoever waits for a group is sent elsewhere; before the server closes."""
        if self._built is not None:
            self._built.stop()

    def _on_update(self, update: MetadataUpdate) -> None:
        if self._built is None and self._leads_offsets():
            self.get()

    def _leads_offsets(self) -> bool:
        topic = self._cluster.find_topic(OFFSETS_TOPIC)
        states = () if topic is None else topic.partitions
        return any(state.leader == self._broker_id for state in states)
