"""A coordinator, built when it is needed: the room of groups alone is a sixth of what a start would
load.

Needed is it by the first client that asks for it, and by a broker that leads a partition of its
topic. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.replication.metadata_cache import MetadataCache

Service_co = TypeVar("Service_co", covariant=True)


class Joined(Protocol[Service_co]):
    """A coordinator, joined to the rooms beside it."""

    @property
    def coordinator(self) -> Service_co: ...

    def start(self, tasks: asyncio.TaskGroup, /) -> None: ...

    def stop(self) -> None: ...


class LateCoordinator(Generic[Service_co]):
    """Make it before the first update of the cluster's view, `start` it before clients come."""

    def __init__(
        self,
        topic: str,
        broker_id: BrokerId,
        cluster: MetadataCache,
        build: Callable[[], Joined[Service_co]],
    ) -> None:
        self._topic = topic
        self._broker_id = broker_id
        self._cluster = cluster
        self._build = build
        self._built: Joined[Service_co] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        cluster.listen(self._on_update)

    def get_service(self) -> Service_co:
        return self.get().coordinator

    def get(self) -> Joined[Service_co]:
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
        """Whoever waits for an answer is sent elsewhere; before the server closes."""
        if self._built is not None:
            self._built.stop()

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        if self._built is None and self._leads_topic():
            self.get()

    def _leads_topic(self) -> bool:
        topic = self._cluster.find_topic(self._topic)
        states = () if topic is None else topic.partitions
        return any(state.leader == self._broker_id for state in states)
