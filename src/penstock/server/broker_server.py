"""Builds the rooms of a broker, joins them, and takes them down in order. Answers no client.

The order of starting: lock and stamp the directories, open the tree, recover the logs, bind, take
up the partitions, and only then let clients in. Stopping goes the other way round.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.apis.data.fetch_sessions import FetchSessions
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.registry import APIS
from penstock.apis.services import Services
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.controller.broker_registration import (
    BrokerIdTaken,
    controller_election,
    get_or_create_cluster_id,
    next_generated_broker_id,
    register_broker,
)
from penstock.controller.controller import Controller
from penstock.controller.interface import Administration
from penstock.controller.producer_ids import BlockProducerIds
from penstock.controller.stored_configs import read_topic_configs
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.io.disk import Disk
from penstock.metadata_store.election import Election
from penstock.metadata_store.errors import MetadataStoreError
from penstock.metadata_store.interface import MetadataStore, Session, SessionId
from penstock.model.cluster import OFFSETS_TOPIC, BrokerEpoch, BrokerId, BrokerNode, Endpoint
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import ProducerIds
from penstock.network.limits import NetworkLimits
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.replication.topic_config import resolve_topic_config
from penstock.security.authorizer import AllowAll
from penstock.server.addresses import (
    Addresses,
    bound_addresses,
    inter_broker_listener,
    listeners_of,
)
from penstock.server.broker_registration import BrokerRegistration
from penstock.server.current_session import CurrentSession
from penstock.server.dynamic_config import DynamicBrokerConfig
from penstock.server.file_descriptors import (
    Shares,
    find_descriptor_limit,
    find_warning,
    share_descriptors,
)
from penstock.server.lazy_coordinator import LateCoordinator
from penstock.server.meta_properties import WrongOwner, check_owner, read_owner, stamp
from penstock.server.metadata_store import find_zookeeper, open_tree
from penstock.server.startup_retry import ask_patiently
from penstock.server.storage_jobs import StorageJobs
from penstock.server.transaction_parts import TransactionParts
from penstock.storage.engine import Engine, PartitionLog
from penstock.storage.errors import MalformedCheckpoint, StorageError
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.segmented_engine import SegmentedEngine

if TYPE_CHECKING:
    from penstock.apis.group_service import GroupService
    from penstock.apis.transactions.marker_append import Codes, Wanted
    from penstock.server.cluster_wiring import ClusterWiring
    from penstock.server.group_wiring import Groups

Report = Callable[[str], None]
Answer = TypeVar("Answer")

DEFAULT_BROKER_ID = 1
SYNC_THREADS = 4
DRAIN_MS = 5_000  # for replies that are on their way when the broker stops
PROGRESS_EVERY_S = 1.0


class StartRefused(Exception):
    """The broker cannot start like this; the message says what to change."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BrokerServer:
    """The rooms of one broker. `open` once, then `close`, or `abandon` where that cannot be."""

    def __init__(self, given: RawConfig, *, report: Report, disk: Disk) -> None:
        self._given = given
        self._report = report
        self._disk = disk
        self._cluster = MetadataCache()
        self._background = FlushThreads(SYNC_THREADS)
        self._journal_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._topic_configs: dict[str, dict[str, str]] = {}  # as recovery finds them in the tree
        self._recovered: Mapping[TopicPartition, PartitionLog] = {}
        self._advertised: dict[str, Endpoint] = {}  # filled when the listeners are bound
        self._is_open = False
        # Built by `open`, in this order; None or absent until then.
        self._tasks: asyncio.TaskGroup
        self._loop: asyncio.AbstractEventLoop
        self._timers: LoopTimers
        self._shares: Shares
        self._engine: Engine | None = None
        self._settings: DynamicBrokerConfig
        self._coordination: MetadataStore | None = None
        self._session: CurrentSession
        self._patience_ms: int  # with a tree that goes away while the broker starts
        self._replicas: ReplicaManager
        self._orders: ControllerRequestHandler
        self._wiring: ClusterWiring | None = None  # None: a single node
        self._controller: Controller
        self._groups: LateCoordinator[GroupService]
        self._transactions: TransactionParts
        self._services: Services
        self._dispatcher: Dispatcher
        self._server: Server
        self._upkeep: StorageJobs
        self.addresses: Addresses  # once bound

    # -- starting --------------------------------------------------------------------------

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Returns when clients are served. Tasks of the rooms end the group when they fail."""
        try:
            await self._open(tasks)
        except (
            WrongOwner,
            BrokerIdTaken,
            MetadataStoreError,
            StorageError,
            MalformedCheckpoint,
            OSError,
        ) as refusal:
            raise StartRefused(str(refusal)) from refusal

    async def _open(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        resolved = resolve_broker(self._given)
        for warning in resolved.warnings:
            self._report(f"warning: {warning}")
        self._share_descriptors()
        storage = StorageConfig.from_broker(resolved)
        engine = self._engine = self._make_engine(storage)
        engine.lock()
        directories = _find_working(engine, storage.log_dirs)
        owner = read_owner(self._disk, directories)
        await self._open_tree(resolved, directories[0])
        broker_id = await self._choose_id(resolved, owner.broker_id)
        self._settings = DynamicBrokerConfig(self._given, broker_id, self._report)
        cluster_id = await self._ask_tree(get_or_create_cluster_id)
        check_owner(owner, broker_id=broker_id, cluster_id=cluster_id, directory=directories[0])
        stamp(self._disk, directories, broker_id=broker_id, cluster_id=cluster_id)
        await self._recover(engine)
        await self._join(BrokerId(broker_id), cluster_id, engine)
        self._is_open = True

    def _share_descriptors(self) -> None:
        limit = find_descriptor_limit()
        self._shares = share_descriptors(limit)
        warning = find_warning(limit)
        if warning is not None:
            self._report(warning)

    def _make_engine(self, storage: StorageConfig) -> Engine:
        return SegmentedEngine(
            storage,
            config_of=self._config_of,
            disk=self._disk,
            background=self._background,
            post=self._post,
            report=self._report,
            descriptors=self._shares.log_files,
        )

    def _post(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)

    def _config_of(self, topic: str) -> LogConfig:
        configs = self._topic_configs.get(topic, {})
        return resolve_topic_config(topic, configs, self._settings(), self._report).log

    async def _choose_id(self, resolved: EffectiveConfig, stamped: int | None) -> int:
        """What the settings say, else what the data says, else the first, or the cluster's next."""
        given = int(str(resolved["broker.id"]))
        if given >= 0:
            return given
        if stamped is not None:
            return stamped
        if resolved["zookeeper.connect"] and resolved["broker.id.generation.enable"]:
            reserved = int(str(resolved["reserved.broker.max.id"]))
            return await self._ask_tree(partial(next_generated_broker_id, reserved_max=reserved))
        return DEFAULT_BROKER_ID

    async def _open_tree(self, resolved: EffectiveConfig, directory: str) -> None:
        self._coordination = await open_tree(
            resolved,
            disk=self._disk,
            directory=directory,
            executor=self._journal_thread,
            report=self._report,
        )
        self._tasks.create_task(self._watch_tree(self._coordination), name="watch-coordination")
        self._session = CurrentSession(await self._coordination.open_session())
        zookeeper = find_zookeeper(resolved)
        self._patience_ms = 0 if zookeeper is None else zookeeper.session_timeout_ms

    async def _ask_tree(self, ask: Callable[[Session], Awaitable[Answer]]) -> Answer:
        """While it starts: later, whoever asks decides how long to wait."""
        return await ask_patiently(
            lambda: ask(self._session), self._open_another_session, patience_ms=self._patience_ms
        )

    async def _open_another_session(self) -> None:
        assert self._coordination is not None
        self._session.current = await self._coordination.open_session()

    async def _watch_tree(self, coordination: MetadataStore) -> None:
        """A tree that takes nothing any more ends the broker: nobody could tell who leads."""
        await coordination.wait_end()

    async def _recover(self, engine: Engine) -> None:
        """Off the loop: after a crash it reads logs for as long as it takes."""
        self._topic_configs = await self._ask_tree(read_topic_configs)
        progress = _RecoveryProgress(self._report)
        self._recovered = await asyncio.get_running_loop().run_in_executor(
            self._journal_thread, lambda: engine.recover(progress, wall_ms())
        )

    async def _join(self, broker_id: BrokerId, cluster_id: str, engine: Engine) -> None:
        self._timers = LoopTimers()
        self._tasks.create_task(self._timers.run(), name="timers")
        self._replicas = ReplicaManager(
            broker_id=broker_id,
            engine=engine,
            metadata=self._cluster,
            effective_config=self._settings,
            timers=self._timers,
            wall_ms=wall_ms,
            report=self._report,
        )
        self._replicas.adopt(self._recovered)
        self._controller = self._make_controller(broker_id)
        self._groups = self._make_groups(broker_id)
        producer_ids = BlockProducerIds(self._session, broker_id)
        self._transactions = self._make_transactions(broker_id, producer_ids)
        self._services = self._make_services(broker_id, cluster_id, engine, producer_ids)
        self._bind(self._services)
        await self._stand(broker_id)
        await self._wait_committed(engine)
        self._upkeep = StorageJobs(engine, self._background, wall_ms, self._look_at_disks)
        self._tasks.create_task(self._upkeep.run(), name="upkeep")
        self._groups.start(self._tasks)
        self._transactions.start(self._tasks)
        if self._wiring is None:
            self._server.start()
        self._dispatcher.open()

    async def _stand(self, broker_id: BrokerId) -> None:
        """Returns when this broker has applied what the controller wants of it."""
        assert self._coordination is not None
        told = asyncio.Event()
        self._cluster.listen(lambda update: self._note_told(broker_id, told))
        standing = BrokerRegistration(
            coordination=self._coordination,
            session=self._session,
            controller=self._controller,
            register=partial(self._register, broker_id),
            make_election=partial(self._make_election, broker_id),
            report=self._report,
        )
        if self._wiring is not None:
            # Orders come over the network, and a controller elsewhere sends them at once.
            self._server.start()
        await ask_patiently(standing.register, standing.open_another, patience_ms=self._patience_ms)
        self._note_told(broker_id, told)  # the order may have been faster than the answer
        self._tasks.create_task(standing.run(), name="controller")
        await told.wait()

    def _note_told(self, broker_id: BrokerId, told: asyncio.Event) -> None:
        """The whole view comes last: with it, all roles of this life have been ordered before."""
        node = self._cluster.brokers.get(broker_id)
        if node is not None and node.epoch == self._orders.broker_epoch:
            told.set()

    async def _wait_committed(self, engine: Engine) -> None:
        """Of synchronous topics only what is on the disk counts, and after a crash nobody knows
        what is: a client must not be told of an end that lies before what it was acknowledged."""
        loop = asyncio.get_running_loop()
        flushed: list[asyncio.Future[None]] = []
        for log in self._recovered.values():
            if log.high_watermark < log.log_end_offset:
                done = loop.create_future()
                flushed.append(done)
                # What cannot be flushed has been fenced by it, and is told to who asks for it.
                engine.flush(log, log.log_end_offset, partial(_settle, done))
        if flushed:
            await asyncio.wait(flushed)

    def _look_at_disks(self) -> None:
        """Partitions of a disk that fails go offline; a broker without any disk has to end."""
        assert self._engine is not None
        self._replicas.handle_log_failures()
        self._engine.check_any_works()

    def _make_controller(self, broker_id: BrokerId) -> Controller:
        self._orders = ControllerRequestHandler(
            broker_id,
            replicas=self._replicas,
            cluster=self._cluster,
            settings=self._settings,
            report=self._report,
        )
        if self._settings()["zookeeper.connect"]:
            self._wiring = self._make_wiring(broker_id)
        controller = Controller(
            session=self._session.current,
            election=self._make_election(broker_id, self._session.current),
            channel=LocalControllerChannel(self._orders)
            if self._wiring is None
            else self._wiring.channel,
            broker_id=broker_id,
            static=self._given,
            report=self._report,
        )
        if self._wiring is not None:
            self._wiring.join(controller, self._tasks)
        return controller

    def _make_wiring(self, broker_id: BrokerId) -> "ClusterWiring":
        # Only here: a single node needs none of what this loads.
        from penstock.server.cluster_wiring import ClusterWiring

        return ClusterWiring(
            broker_id,
            orders=self._orders,
            replicas=self._replicas,
            cluster=self._cluster,
            settings=self._settings,
            listener=inter_broker_listener(self._settings()),
            timers=self._timers,
            report=self._report,
        )

    @property
    def _administration(self) -> Administration:
        return self._controller if self._wiring is None else self._wiring.administration

    def _make_election(self, broker_id: BrokerId, session: Session) -> Election:
        policy = str(self._settings()["controller.election"])
        return controller_election(session, broker_id, now_ms=wall_ms(), policy=policy)

    def _make_groups(self, broker_id: BrokerId) -> "LateCoordinator[GroupService]":
        groups: LateCoordinator[GroupService] = LateCoordinator(
            OFFSETS_TOPIC, broker_id, self._cluster, partial(self._build_groups, broker_id)
        )
        if str(self._settings()["offsets.storage"]).lower() != "kafka":
            groups.get()  # to forget topics that go, whether or not somebody asks for a group
        return groups

    def _build_groups(self, broker_id: BrokerId) -> "Groups":
        from penstock.server.group_wiring import Groups

        return Groups(
            broker_id=broker_id,
            replicas=self._replicas,
            cluster=self._cluster,
            administration=self._administration,
            session=self._session,
            timers=self._timers,
            settings=self._settings,
            wall_ms=wall_ms,
            report=self._report,
        )

    def _make_transactions(
        self, broker_id: BrokerId, producer_ids: ProducerIds
    ) -> TransactionParts:
        is_alone = self._wiring is None
        return TransactionParts(
            broker_id,
            replicas=self._replicas,
            cluster=self._cluster,
            administration=self._administration,
            producer_ids=producer_ids,
            write_markers=self._write_markers,
            listener=None if is_alone else inter_broker_listener(self._settings()),
            timers=self._timers,
            settings=self._settings,
            wall_ms=wall_ms,
            run=self._run_task,
            report=self._report,
        )

    async def _write_markers(self, wanted: "Sequence[Wanted]") -> "list[Codes]":
        from penstock.apis.transactions.marker_append import write_markers

        return await write_markers(self._services, wanted)

    def _make_services(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        engine: Engine,
        producer_ids: ProducerIds,
    ) -> Services:
        slots = self._settings()["max.incremental.fetch.session.cache.slots"]
        return Services(
            broker_id=broker_id,
            cluster_id=cluster_id,
            metadata=self._cluster,
            replicas=self._replicas,
            engine=engine,
            administration=self._administration,
            get_groups=self._groups.get_service,
            get_transactions=self._transactions.get_service,
            verify_transaction=self._transactions,
            producer_ids=producer_ids,
            authorizer=AllowAll(),
            timers=self._timers,
            wall_ms=wall_ms,
            effective_config=self._settings,
            advertised=self._advertised,
            fetch_sessions=FetchSessions(max_sessions=int(str(slots))),
            run=self._run_task,
            report=self._report,
            static_config=self._given,
            inter_broker=None if self._wiring is None else self._wiring.inter_broker,
        )

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work)

    async def _register(
        self, broker_id: BrokerId, session: Session, own_sessions: list[SessionId]
    ) -> None:
        rack = self._settings()["broker.rack"]
        node = BrokerNode(
            id=broker_id,
            epoch=BrokerEpoch(-1),
            endpoints=self.addresses.registered,
            rack=None if rack is None else str(rack),
        )
        epoch = await register_broker(session, node, now_ms=wall_ms(), own_sessions=own_sessions)
        self._orders.set_broker_epoch(epoch)

    def _bind(self, services: Services) -> None:
        resolved = self._settings()
        self._dispatcher = Dispatcher(APIS, services, is_open=False)
        limits = NetworkLimits.from_broker(resolved)
        most = min(limits.max_connections, self._shares.connections)
        self._server = Server(
            on_request=self._dispatcher.on_request,
            timers=self._timers,
            limits=replace(limits, max_connections=most),
            report=self._report,
        )
        bound = []
        for listener in listeners_of(resolved):
            try:
                host, port = self._server.bind(listener.name, listener.host, listener.port)
            except OSError as error:
                where = f"{listener.host or '*'}:{listener.port}"
                raise StartRefused(
                    f"listener {listener.name} cannot listen on {where} ({error.strerror}); "
                    f"choose another address with --listen or listeners, or stop who has it"
                ) from error
            bound.append(listener._replace(host=host, port=port))
        self.addresses = bound_addresses(resolved, bound)
        self._advertised.update(self.addresses.advertised)

    # -- stopping --------------------------------------------------------------------------

    async def close(self) -> None:
        """A clean stop: what was begun is answered, and the next start has nothing to check."""
        assert self._engine is not None
        assert self._coordination is not None
        if self._wiring is not None:
            await self._wiring.hand_over()
        self._server.stop_requests()
        self._groups.stop()
        self._transactions.stop()
        self._replicas.produce_purgatory.expire_all()
        self._replicas.fetch_purgatory.expire_all()
        await self._server.close(DRAIN_MS)
        await self._controller.close()
        if self._wiring is not None:
            await self._wiring.close()
        await self._transactions.close()
        self._upkeep.stop()
        self._timers.stop()
        # Flushes under way end before the engine closes, and their news reach the loop.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._journal_thread, self._background.join)
        await asyncio.sleep(0)
        await loop.run_in_executor(self._journal_thread, self._engine.close)
        self._engine = None
        await self._session.close()
        await self._coordination.close()
        self._coordination = None

    def abandon(self) -> None:
        """Let go of whatever `close` did not: as a crash would, the next start recovers."""
        if self._engine is not None:
            self._engine.abandon()
            self._engine = None
        self._journal_thread.shutdown(wait=False)
        self._background.stop()


def _find_working(engine: Engine, directories: Sequence[str]) -> Sequence[str]:
    """Those that the engine could lock: the broker goes on with what is left of its disks. But not
    without the first, where the tree is."""
    failed = engine.statistics().failed_directories
    first = os.path.abspath(directories[0])
    if first in failed:
        raise StartRefused(
            f"data directory {first} cannot be used ({failed[first]}); all topics are written down "
            f"there: make it usable, or name another with --data or log.dirs"
        )
    return [each for each in directories if os.path.abspath(each) not in failed]


class _RecoveryProgress:
    """Says how far it is, once a second."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._next_s = time.monotonic() + PROGRESS_EVERY_S

    def __call__(self, *, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s and done < total:
            self._next_s = now_s + PROGRESS_EVERY_S
            self._report(f"recovering: {done} of {total} partitions")


def _settle(done: "asyncio.Future[None]", error: StorageError | None) -> None:
    done.set_result(None)
