"""Brokers of one cluster in one process: real controllers, channels, servers and replicas on
loopback, over one tree with a session each. Disks are simulated; nobody fetches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tests.unit.apis.groups_twin import GroupsTwin
from tests.unit.apis.transactions_twin import TransactionsTwin

from penstock.apis.config import ApiConfig
from penstock.apis.data.fetch_sessions import FetchSessions
from penstock.apis.dispatcher import Dispatcher
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
from penstock.inter_broker.remote_controller_channel import RemoteControllerChannel
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
SOON_S = 60.0


async def sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(min(duration_ms, 20) / 1000)


class LittleBroker:
    """Listens twice: for brokers and for clients."""

    def __init__(
        self, broker: int, store: MetadataStore, tasks: asyncio.TaskGroup, given: RawConfig
    ) -> None:
        self.id = BrokerId(broker)
        self.reports: list[str] = []
        self.cluster = MetadataCache()
        self.settings = DynamicBrokerConfig(given, broker, self.reports.append)
        self.timers = LoopTimers()
        self.disk = SimulatedDisk("/data")
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=("/data",)),
            config_of=lambda topic: LogConfig(),
            disk=self.disk,
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)
        self.peers = BrokerConnections(own_id=self.id, listener=BROKERS)
        self._store = store
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self.replicas = ReplicaManager(
            broker_id=self.id,
            engine=self.engine,
            metadata=self.cluster,
            effective_config=self.settings,
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            report=self.reports.append,
        )
        self.orders = ControllerRequestHandler(
            self.id,
            replicas=self.replicas,
            cluster=self.cluster,
            settings=self.settings,
            report=self.reports.append,
        )

    async def start(self) -> None:
        self.current = CurrentSession(await self._store.open_session())
        channel = RemoteControllerChannel(
            self.id,
            local=LocalControllerChannel(self.orders),
            connections=self.peers,
            timeout_ms=30_000,
        )
        self.controller = Controller(
            session=self.session,
            election=self._make_election(self.session),
            channel=channel,
            broker_id=self.id,
            wait_ms=sleep_ms,
            report=self.reports.append,
        )
        to_controller = ControllerClient(self.id, cluster=self.cluster, peers=self.peers)
        self.administration = ForwardingAdministration(to_controller, local=self.controller)
        self.in_sync = AlterPartitionClient(
            to_controller,
            membership=self.controller,
            broker_epoch=lambda: self.orders.broker_epoch,
            wait_ms=sleep_ms,
        )
        self.failures = FailedReplicasSender(
            to_controller,
            membership=self.controller,
            broker_epoch=lambda: self.orders.broker_epoch,
            wait_ms=sleep_ms,
        )
        self.replicas.listen_for_log_failures(self.failures.note)
        self.leaving = ControlledShutdown(
            to_controller,
            metadata=self.cluster,
            membership=self.controller,
            config=CachedConfig(self.settings, InterBrokerConfig.from_broker),
            wait_ms=sleep_ms,
            report=self.reports.append,
        )
        self._serve()
        self.standing = BrokerRegistration(
            broker_id=self.id,
            store=self._store,
            session=self.current,
            controller=self.controller,
            register=self._register,
            make_election=self._make_election,
            report=self.reports.append,
        )
        await self.standing.register()
        works = (self.standing.run(), self.in_sync.run(), self.failures.run(), self.timers.run())
        for work in works:
            self._running.append(self._tasks.create_task(work))

    def _make_election(self, session: Session) -> Election:
        return controller_election(session, self.id, now_ms=NOW_MS)

    async def _register(self, session: Session, own_sessions: list[SessionId]) -> None:
        node = BrokerNode(id=self.id, epoch=BrokerEpoch(-1), endpoints=self.endpoints)
        epoch = await register_broker(session, node, now_ms=NOW_MS, own_sessions=own_sessions)
        self.orders.set_broker_epoch(epoch)

    @property
    def session(self) -> Session:
        return self.current.current

    def _serve(self) -> None:
        services = Services(
            broker_id=self.id,
            cluster_id="little",
            metadata=self.cluster,
            replicas=self.replicas,
            engine=self.engine,
            administration=self.administration,
            get_groups=GroupsTwin,
            get_transactions=TransactionsTwin,
            producer_ids=BlockProducerIds(self.current, self.id),
            authorizer=AllowAll(),
            timers=self.timers,
            wall_ms=lambda: NOW_MS,
            config=CachedConfig(self.settings, ApiConfig.from_broker),
            effective_config=self.settings,
            advertised={},
            fetch_sessions=FetchSessions(max_sessions=10),
            run=lambda work: self._running.append(self._tasks.create_task(work)),
            report=self.reports.append,
            inter_broker=InterBroker(
                listener=BROKERS,
                membership=self.controller,
                configs=self.controller,
                handle_controller_request=self.orders.handle,
                load_api=load_private_api,
            ),
        )
        self.server = Server(
            on_request=Dispatcher(APIS, services).on_request,
            timers=self.timers,
            limits=NetworkLimits.from_broker(self.settings()),
            report=self.reports.append,
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
        await self.peers.close()
        self.timers.stop()
        await self.session.close()
        await self._end_tasks()

    async def kill(self) -> None:
        """Nothing is handed over and nobody is told: its session ends later."""
        await self.server.close(0)
        await self.peers.close()
        await self._end_tasks()
        await self.session.close()

    async def _end_tasks(self) -> None:
        for task in self._running:
            task.cancel()
        for task in self._running:
            with suppress(asyncio.CancelledError):
                await task


class LittleCluster:
    def __init__(self, store: MetadataStore, tasks: asyncio.TaskGroup) -> None:
        self.store = store
        self.tasks = tasks
        self.brokers: dict[int, LittleBroker] = {}

    async def add(self, broker: int, given: RawConfig | None = None) -> LittleBroker:
        given = given or RawConfig.from_mapping({"broker.id": str(broker)}, where="test")
        made = LittleBroker(broker, self.store, self.tasks, given)
        self.brokers[broker] = made
        await made.start()
        return made

    @property
    def leading(self) -> LittleBroker:
        [found] = [b for b in self.brokers.values() if b.controller.find_state() is not None]
        return found

    async def wait_joined(self) -> None:
        """Until each broker knows of all the others, and who the controller is."""
        known = set(self.brokers)

        def is_joined() -> bool:
            found = [broker.controller.find_state() for broker in self.brokers.values()]
            epochs = [state.controller_epoch for state in found if state is not None]
            return len(epochs) == 1 and all(
                set(broker.cluster.brokers) == known
                and broker.cluster.controller_epoch == epochs[0]
                for broker in self.brokers.values()
            )

        await until(is_joined)


async def until(holds: Callable[[], bool]) -> None:
    """Network and threads take their time; nothing is assumed about how much."""
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 - what it looks at has no events
            await asyncio.sleep(0.002)


@asynccontextmanager
async def little_cluster(store: MetadataStore, *brokers: int) -> AsyncIterator[LittleCluster]:
    async with asyncio.TaskGroup() as tasks:
        cluster = LittleCluster(store, tasks)
        for broker in brokers:
            await cluster.add(broker)
        await cluster.wait_joined()
        yield cluster
        for little_broker in cluster.brokers.values():
            await little_broker.stop()


def tell(story: Callable[[LittleCluster], Awaitable[None]], *brokers: int) -> None:
    async def run() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/tree")
        async with asyncio.timeout(60), little_cluster(store, *brokers) as cluster:
            await story(cluster)
        await store.close()

    asyncio.run(run())
