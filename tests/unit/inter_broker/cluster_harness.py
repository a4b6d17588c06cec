"""Brokers of one cluster in one process, over one metadata store with a session each.

Controllers, channels, servers and replicas are real, on loopback. Disks are simulated, and no
follower fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tests.unit.apis.fake_deferred_messages import FakeDeferredMessages
from tests.unit.apis.fake_group_coordinator import FakeGroupCoordinator
from tests.unit.apis.fake_transaction_coordinator import FakeTransactionCoordinator

from penstock.apis.config import ApiConfig
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.fetch_sessions import FetchSessions
from penstock.apis.inter_broker_access import InterBroker
from penstock.apis.registry import APIS
from penstock.apis.services import Services
from penstock.config.cached_config import CachedConfig
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.controller.broker_registration import controller_election, register_broker
from penstock.controller.controller import Controller
from penstock.controller.producer_ids import BlockProducerIds
from penstock.inter_broker.alter_partition_client import AlterPartitionClient
from penstock.inter_broker.apis.registry import load_private_api
from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.controlled_shutdown import ControlledShutdown
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.inter_broker.failed_replicas_sender import FailedReplicasSender
from penstock.inter_broker.forwarding import ForwardingAdministration
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.inter_broker.refused_batches_sender import RefusedBatchesSender
from penstock.inter_broker.remote_controller_channel import RemoteControllerChannel
from penstock.logs.event_logger import message_logger
from penstock.logs.levels import INFO
from penstock.metadata_store.election import Election
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import MetadataStore, Session, SessionId
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode, Endpoint
from penstock.network.limits import NetworkLimits
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import AllowAll
from penstock.server.broker_registration import BrokerRegistration
from penstock.server.current_session import CurrentSession
from penstock.server.dynamic_config import DynamicBrokerConfig
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
BROKERS, CLIENTS = "BROKERS", "CLIENTS"
SOON_S = 180.0


async def sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(min(duration_ms, 20) / 1000)


class BrokerHarness:
    """A broker with two listeners: for brokers and for clients."""

    def __init__(
        self, broker: int, store: MetadataStore, tasks: asyncio.TaskGroup, raw_config: RawConfig
    ) -> None:
        self.id = BrokerId(broker)
        self.reports: list[str] = []
        self.metadata = MetadataCache()
        self.config = DynamicBrokerConfig(
            raw_config, broker, message_logger(self.reports.append, INFO)
        )
        self.timers = LoopTimers()
        self.disk = SimulatedDisk("/data")
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=("/data",)),
            config_of=lambda topic: LogConfig(),
            disk=self.disk,
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)
        self.connections = BrokerConnections(own_id=self.id, listener=BROKERS)
        self._store = store
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self.replicas = ReplicaManager(
            broker_id=self.id,
            engine=self.engine,
            metadata=self.metadata,
            effective_config=self.config,
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            logger=message_logger(self.reports.append, INFO),
        )
        self.handler = ControllerRequestHandler(
            self.id,
            replicas=self.replicas,
            metadata=self.metadata,
            dynamic_config=self.config,
            logger=message_logger(self.reports.append, INFO),
        )

    async def start(self) -> None:
        self.current = CurrentSession(await self._store.open_session())
        channel = self.channel = RemoteControllerChannel(
            self.id,
            local=LocalControllerChannel(self.handler),
            connections=self.connections,
            timeout_ms=30_000,
        )
        self.controller = Controller(
            session=self.session,
            election=self._make_election(self.session),
            channel=channel,
            broker_id=self.id,
            wait_ms=sleep_ms,
            logger=message_logger(self.reports.append, INFO),
        )
        to_controller = ControllerClient(
            self.id, metadata=self.metadata, connections=self.connections
        )
        self.administration = ForwardingAdministration(to_controller, local=self.controller)
        self.alter_partition = AlterPartitionClient(
            to_controller,
            membership=self.controller,
            broker_epoch=lambda: self.handler.broker_epoch,
            wait_ms=sleep_ms,
        )
        self.failed_replicas = FailedReplicasSender(
            to_controller,
            membership=self.controller,
            broker_epoch=lambda: self.handler.broker_epoch,
            wait_ms=sleep_ms,
        )
        self.replicas.listen_for_log_failures(self.failed_replicas.add)
        self.damaged_leaders = FailedReplicasSender(
            to_controller,
            membership=self.controller,
            broker_epoch=lambda: self.handler.broker_epoch,
            wait_ms=sleep_ms,
            is_damaged=True,
        )
        self.replicas.listen_for_damage(self.damaged_leaders.add)
        self.refused_batches = RefusedBatchesSender(
            self.id, metadata=self.metadata, connections=self.connections
        )
        self.replicas.follower_state.on_refused = self.refused_batches.add
        self.shutdown = ControlledShutdown(
            to_controller,
            metadata=self.metadata,
            membership=self.controller,
            config=CachedConfig(self.config, InterBrokerConfig.from_broker),
            wait_ms=sleep_ms,
            logger=message_logger(self.reports.append, INFO),
        )
        self._serve()
        self.registration = BrokerRegistration(
            broker_id=self.id,
            store=self._store,
            session=self.current,
            controller=self.controller,
            register=self._register,
            make_election=self._make_election,
            logger=message_logger(self.reports.append, INFO),
        )
        await self.registration.register()
        works = (
            self.registration.run(),
            self.alter_partition.run(),
            self.failed_replicas.run(),
            self.damaged_leaders.run(),
            self.refused_batches.run(),
            self.timers.run(),
        )
        for work in works:
            self._running.append(self._tasks.create_task(work))

    def _make_election(self, session: Session) -> Election:
        return controller_election(session, self.id, now_ms=NOW_MS)

    async def _register(self, session: Session, own_sessions: list[SessionId]) -> None:
        node = BrokerNode(id=self.id, epoch=BrokerEpoch(-1), endpoints=self.endpoints)
        epoch = await register_broker(session, node, now_ms=NOW_MS, own_sessions=own_sessions)
        self.handler.set_broker_epoch(epoch)

    @property
    def session(self) -> Session:
        return self.current.current

    def _serve(self) -> None:
        services = Services(
            broker_id=self.id,
            cluster_id="harness",
            metadata=self.metadata,
            replicas=self.replicas,
            engine=self.engine,
            administration=self.administration,
            get_groups=FakeGroupCoordinator,
            get_deferred=FakeDeferredMessages,
            get_transactions=FakeTransactionCoordinator,
            producer_ids=BlockProducerIds(self.current, self.id),
            authorizer=AllowAll(),
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            config=CachedConfig(self.config, ApiConfig.from_broker),
            effective_config=self.config,
            advertised={},
            fetch_sessions=FetchSessions(max_sessions=10),
            run=lambda work: self._running.append(self._tasks.create_task(work)),
            logger=message_logger(self.reports.append, INFO),
            inter_broker=InterBroker(
                listener=BROKERS,
                membership=self.controller,
                configs=self.controller,
                handle_controller_request=self.handler.handle,
                load_api=load_private_api,
            ),
        )
        self.server = Server(
            on_request=Dispatcher(APIS, services).on_request,
            timers=self.timers,
            limits=NetworkLimits.from_broker(self.config()),
            logger=message_logger(self.reports.append, INFO),
        )
        self.endpoints = tuple(
            Endpoint(name, "PLAINTEXT", *self.server.bind(name, "127.0.0.1", 0))
            for name in (BROKERS, CLIENTS)
        )
        self.server.start()

    def address(self, listener: str) -> Endpoint:
        return next(endpoint for endpoint in self.endpoints if endpoint.listener == listener)

    async def stop(self) -> None:
        await self.controller.close()
        await self.server.close(1000)
        await self.connections.close()
        self.timers.stop()
        await self.session.close()
        await self._end_tasks()

    async def kill(self) -> None:
        """Stop without controlled shutdown; its session ends last."""
        await self.server.close(0)
        await self.connections.close()
        await self._end_tasks()
        await self.session.close()

    async def _end_tasks(self) -> None:
        for task in self._running:
            task.cancel()
        for task in self._running:
            with suppress(asyncio.CancelledError):
                await task


class ClusterHarness:
    def __init__(self, store: MetadataStore, tasks: asyncio.TaskGroup) -> None:
        self.store = store
        self.tasks = tasks
        self.brokers: dict[int, BrokerHarness] = {}

    async def add(self, broker_id: int, raw_config: RawConfig | None = None) -> BrokerHarness:
        raw_config = raw_config or RawConfig.from_mapping(
            {"broker.id": str(broker_id)}, where="test"
        )
        broker = BrokerHarness(broker_id, self.store, self.tasks, raw_config)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    @property
    def controller(self) -> BrokerHarness:
        """The broker of the active controller."""
        [active] = [
            broker for broker in self.brokers.values() if broker.controller.find_state() is not None
        ]
        return active

    async def wait_joined(self) -> None:
        """Wait until every broker has all brokers and the controller in its metadata."""
        all_ids = set(self.brokers)

        def is_joined() -> bool:
            states = [broker.controller.find_state() for broker in self.brokers.values()]
            epochs = [state.controller_epoch for state in states if state is not None]
            return len(epochs) == 1 and all(
                set(broker.metadata.brokers) == all_ids
                and broker.metadata.controller_epoch == epochs[0]
                for broker in self.brokers.values()
            )

        await until(is_joined)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds: network and threads take an unknown time."""
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.002)


@asynccontextmanager
async def cluster_harness(store: MetadataStore, *brokers: int) -> AsyncIterator[ClusterHarness]:
    async with asyncio.TaskGroup() as tasks:
        cluster = ClusterHarness(store, tasks)
        for broker in brokers:
            await cluster.add(broker)
        await cluster.wait_joined()
        yield cluster
        for started in cluster.brokers.values():
            await started.stop()


def run_scenario(scenario: Callable[[ClusterHarness], Awaitable[None]], *brokers: int) -> None:
    async def run() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/store")
        async with asyncio.timeout(60), cluster_harness(store, *brokers) as cluster:
            await scenario(cluster)
        await store.close()

    asyncio.run(run())
