"""Fetches from leaders begin with the first partition that follows one: a single node never does,
and need not load what it takes.
"""

import asyncio
from collections.abc import Callable

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import Clock, ReplicaManager


class LateFetchers:
    """Owned by the event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        listener: str,  # which the brokers use among themselves
        broker_epoch: Callable[[], BrokerEpoch],
        timers: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._cluster = cluster
        self._listener = listener
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._report = report
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._replicas.follower_state.on_news = self._begin
        for leader in self._replicas.follower_state.leaders[:1]:
            self._begin(leader)

    def stop(self) -> None:
        """Nothing more comes from leaders."""
        self._replicas.follower_state.on_news = lambda leader: None
        if self._task is not None:
            self._task.cancel()

    def _begin(self, leader: BrokerId) -> None:
        from penstock.client.address import Address
        from penstock.replication.replica_fetcher import FetcherDependencies, ReplicaFetcherManager

        def find_address(broker: BrokerId) -> Address | None:
            node = self._cluster.brokers.get(broker)
            endpoint = None if node is None else node.find_endpoint(self._listener)
            return None if endpoint is None else Address(endpoint.host, endpoint.port)

        assert self._tasks is not None
        fetchers = ReplicaFetcherManager(
            FetcherDependencies(
                follower_state=self._replicas.follower_state,
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                find_address=find_address,
                topic_id_of=lambda partition: self._replicas.get(partition).topic_id,
                config=self._replicas.follower_config,
                now_ms=self._timers.now_ms,
                report=self._report,
            )
        )
        self._task = self._tasks.create_task(fetchers.run(), name="fetchers")
