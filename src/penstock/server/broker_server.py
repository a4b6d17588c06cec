"""Starts and stops one broker. Serves no request itself.

Start: lock the log directories, open the metadata store, recover the logs, bind the listeners,
register, apply the controller's requests, and only then serve clients. Stop is the reverse.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.config.custom_settings import describe_inert_topics
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.config.security_checks import secured_listeners
from penstock.controller.broker_registration import BrokerIdTaken, check_id_is_free
from penstock.controller.stored_configs import read_topic_configs
from penstock.io.disk import Disk
from penstock.logs.broker_loggers import BrokerLoggers
from penstock.metadata_store.errors import DamagedZnode, MetadataStoreError
from penstock.metrics.broker_state import BrokerState
from penstock.model.ids import Offset, TimestampMs, TopicPartition
from penstock.network.server import Server
from penstock.protocol.private_keys import PrivateKey
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.replication.validation_cost import find_validation_warning
from penstock.security.audit.trail import NO_AUDIT, AuditTrail
from penstock.server.addresses import Addresses
from penstock.server.authorization import follow_acls, open_authorization
from penstock.server.broker_identity import BrokerIdentity, establish_identity
from penstock.server.broker_parts import BrokerParts, build_parts
from penstock.server.broker_registration import build_registration
from penstock.server.broker_storage import BrokerStorage
from penstock.server.client_quotas import BrokerQuotas, open_quotas
from penstock.server.config import ServerConfig
from penstock.server.context import BrokerContext
from penstock.server.dynamic_config import DynamicBrokerConfig
from penstock.server.errors import StartRefused
from penstock.server.file_descriptors import (
    find_descriptor_limit,
    find_warning,
    share_descriptors,
)
from penstock.server.incarnation import BrokerIncarnation, RecoveredLogs, report_lost
from penstock.server.lazy import Lazy
from penstock.server.listeners import bind_listeners, build_server
from penstock.server.loop_times import LoopTimes, read_loop_times
from penstock.server.meta_properties import WrongEngine, WrongOwner, check_engine, read_owner
from penstock.server.metadata_store import BrokerMetadataStore, open_broker_store
from penstock.server.new_directories import NewDirectories, find_missing
from penstock.server.pause_log import PauseLog
from penstock.server.stall_log import StallLog
from penstock.server.startup_retry import retry_at_startup
from penstock.server.storage_jobs import StorageJobs
from penstock.server.watchdog import Watchdog
from penstock.storage.errors import MalformedCheckpoint, StorageError

if TYPE_CHECKING:
    from penstock.apis.api import Api
    from penstock.controller.scram_store import ScramStore
    from penstock.metrics.committed_times import CommittedTimes
    from penstock.metrics.endpoints import Health
    from penstock.metrics.scrape import Collect, Scraper
    from penstock.security.server_tls import ServerTls
    from penstock.server.audit_log import AuditLog
    from penstock.server.broker_logins import BrokerLogins
    from penstock.server.metrics_listener import MetricsListener
    from penstock.server.otlp_push import OtlpPush


DRAIN_MS = 5_000  # a stopping broker waits this long for responses under way

_REFUSALS = (
    WrongOwner,
    WrongEngine,
    BrokerIdTaken,
    DamagedZnode,
    MetadataStoreError,
    StorageError,
    MalformedCheckpoint,
    OSError,
)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BrokerServer:
    """`open` once, then `close`, and always `abandon` at the end."""

    def __init__(
        self,
        raw_config: RawConfig,
        *,
        loggers: BrokerLoggers,
        disk: Disk,
        watchdog: Watchdog,
        stalls: StallLog,
        pauses: PauseLog,
    ) -> None:
        self._watchdog = watchdog
        self._stalls = stalls
        self._pauses = pauses
        self._state = BrokerState.STARTING
        self._metrics: MetricsListener | None = None  # None: not configured
        self._collecting: Lazy[Collect] = Lazy(self._build_collecting)
        self._committed_times: Lazy[CommittedTimes] = Lazy(self._build_committed_times)
        self._scraper: Lazy[Scraper] = Lazy(self._build_scraper)
        self._push: OtlpPush | None = None  # None: not configured
        self._reloading: asyncio.Task[None] | None = None  # None: no listener has TLS
        self._raw_config = raw_config
        self._loggers = loggers
        self._logger = loggers.get("server")
        self._disk = disk
        # Built by `open`, in this order.
        self._tasks: asyncio.TaskGroup
        self._started: LoopTimes
        self._storage: BrokerStorage | None = None
        self._new_directories: NewDirectories | None = None
        self._incarnation: BrokerIncarnation | None = None  # in a cluster
        self._following_acls: asyncio.Task[None] | None = None  # with an authorizer
        self._quotas: BrokerQuotas
        self._following_quotas: asyncio.Task[None] | None = None  # None: not open yet
        self._audit_log: AuditLog | None = None  # None: not started, or there is no audit trail
        self._store: BrokerMetadataStore
        self._cluster_id: str
        self._timers: LoopTimers
        self._context: BrokerContext
        self._parts: BrokerParts
        self._tls: Mapping[str, ServerTls]  # by listener
        self._logins: BrokerLogins | None = None  # None: no listener has SASL
        self._scram_store: Lazy[ScramStore] = Lazy(self._build_scram_store)
        self._server: Server
        self.addresses: Addresses  # of the bound listeners
        self._storage_jobs: StorageJobs

    # -- start -----------------------------------------------------------------------------

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Returns when clients are served. A failed task of any part ends the group."""
        try:
            await self._open(tasks)
        except _REFUSALS as refusal:
            raise StartRefused(str(refusal)) from refusal

    async def _open(self, tasks: asyncio.TaskGroup) -> None:
        started_s = time.monotonic()
        self._tasks = tasks
        self._started = read_loop_times()
        config = resolve_broker(self._raw_config)
        self._pauses.threshold_ms = config.get_int("logging.pause.ms")
        for warning in config.warnings:
            self._loggers.get("config").warning("config_warning", f"warning: {warning}")
        inert = config.describe_without_effect()
        if inert is not None:
            self._loggers.get("config").warning("settings_without_effect", inert)
        limit = find_descriptor_limit()
        shares = share_descriptors(limit)
        too_few = find_warning(limit)
        if too_few is not None:
            self._logger.warning("few_descriptors", too_few)
        slow = find_validation_warning()
        if slow is not None:
            self._logger.warning("slow_validation", slow)
        self._tls = self._load_tls(config)
        self._logins = self._make_logins(config)
        await self._open_metrics(config)
        storage = self._storage = BrokerStorage(
            StorageConfig.from_broker(config),
            disk=self._disk,
            descriptors=shares.log_files,
            logger=self._loggers.get("storage"),
        )
        identity = await self._identify(config, storage)
        self._loggers.broker_id = identity.broker_id
        self._logger.info(
            "starting",
            f"broker {identity.broker_id} of cluster {identity.cluster_id} is starting",
            cluster_id=identity.cluster_id,
            log_dirs=storage.lock(),
        )
        dynamic_config = DynamicBrokerConfig(
            self._raw_config, identity.broker_id, self._loggers.get("config")
        )
        topic_configs = await self._store.ask_at_startup(
            lambda session: read_topic_configs(session, self._loggers.get("config"))
        )
        inert_topics = describe_inert_topics(topic_configs)
        if inert_topics is not None:
            self._loggers.get("config").warning("settings_without_effect", inert_topics)
        self._state = BrokerState.RECOVERY
        await storage.recover(topic_configs, dynamic_config, wall_ms)
        self._state = BrokerState.STARTING
        self._context = self._build_context(identity, storage, dynamic_config)
        audit = self._build_audit_trail(config, identity)
        authorization = await open_authorization(
            config, self._tls, self._store, self._timers, self._loggers.get("authorizer"), audit
        )
        if authorization.acls is not None:
            self._following_acls = follow_acls(authorization.acls, tasks)
        security_logger = self._loggers.get("security")
        if self._logins is not None:
            await self._logins.open(self._scram_store, self._store, security_logger, tasks)
        self._quotas = await open_quotas(config, self._store, security_logger)
        self._following_quotas = self._quotas.follow(tasks)
        self._parts = build_parts(
            self._context,
            authorization=authorization,
            get_scram_users=self._scram_store.get,
            quotas=self._quotas,
            audit=audit,
            raw_config=self._raw_config,
            dynamic_config=dynamic_config,
            cluster_id=identity.cluster_id,
            store=self._store,
            engine=storage.engine,
            client_apis={
                PrivateKey.DESCRIBE_METRICS: self._load_describe_metrics,
                PrivateKey.DESCRIBE_REPLICAS: _load_describe_replicas,
                PrivateKey.END_DELAYED: _load_end_delayed,
                PrivateKey.DESCRIBE_OFFSET_TIMES: _load_describe_offset_times,
            },
            disk=self._disk,
        )
        self._bind(shares.connections)
        self._cluster_id = identity.cluster_id
        if self._metrics is not None:
            self._metrics.serve(self._scraper.get())
        self._push_metrics(config)
        await self._check_replicas(config, identity, storage)
        self._keep_directories()  # the registration is about to write their incarnation
        await self._serve(storage)
        self._start_audit()
        self._state = BrokerState.RUNNING
        self._stalls.threshold_ms = config.get_int("logging.stall.ms")
        self._logger.info("listening", self.addresses.describe())
        self._logger.info(
            "started",
            f"broker {identity.broker_id} serves clients",
            duration_ms=round((time.monotonic() - started_s) * 1000),
        )

    def _build_audit_trail(self, config: EffectiveConfig, identity: BrokerIdentity) -> AuditTrail:
        if not config.get_bool("penstock.audit.enable"):
            return NO_AUDIT
        # Imported here because most brokers have no audit trail.
        from penstock.server.audit_log import build_trail

        return build_trail(config, identity.cluster_id, identity.broker_id)

    def _start_audit(self) -> None:
        if self._parts.audit is NO_AUDIT:
            return
        from penstock.server.audit_log import AuditLog

        self._audit_log = AuditLog(self._parts.audit, self._context, self._parts)
        self._audit_log.start(self._tasks)

    async def _open_metrics(self, config: EffectiveConfig) -> None:
        if not config.get_str("metrics.listener"):
            return
        # Imported here because most brokers of tests have no metrics listener.
        from penstock.server.metrics_listener import MetricsListener, find_metrics_address

        address = find_metrics_address(config)
        assert address is not None, "the setting is checked"
        self._metrics = MetricsListener(config, self._find_health, self._loggers.get("metrics"))
        await self._metrics.open(address)

    def _build_scraper(self) -> "Scraper":
        """On the first use, because it imports every package."""
        from penstock.metrics.scrape import Scraper

        return Scraper(
            self._collecting.get(),
            self._committed_times.get(),
            started_s=self._started.monotonic_s,
            partition_limit=self._find_partition_limit,
        )

    def _build_collecting(self) -> "Collect":
        from penstock.server.broker_statistics import StatisticsSources, collect_statistics
        from penstock.server.loop_monitor import LoopMonitor

        assert self._storage is not None
        storage = self._storage
        sources = StatisticsSources(
            context=self._context,
            parts=self._parts,
            server=self._server,
            timers=self._timers,
            store=self._store,
            engine=storage.engine,
            cluster_id=self._cluster_id,
            state=lambda: self._state,
            remaining_logs=lambda: storage.remaining_logs,
            loop=LoopMonitor(self._watchdog, self._started).statistics,
        )
        return lambda: collect_statistics(sources)

    def _build_committed_times(self) -> "CommittedTimes":
        from penstock.metrics.committed_times import CommittedTimes

        replicas = self._context.replicas

        def find_time(tp: TopicPartition, offset: Offset) -> TimestampMs | None:
            partition = replicas.find(tp)
            return None if partition is None else partition.find_time_of(offset)

        return CommittedTimes(find_time)

    def _find_partition_limit(self) -> int:
        return self._context.config().get_int("metrics.partition.limit")

    def _push_metrics(self, config: EffectiveConfig) -> None:
        url = config.get_str("metrics.otlp.endpoint")
        if not url:
            return
        from penstock.metrics.families import Dialect
        from penstock.server.otlp_push import OtlpPush

        logger = self._loggers.get("metrics")
        self._push = OtlpPush(
            url,
            collect=self._collecting.get(),
            committed_times=self._committed_times.get(),
            dialect=Dialect[config.get_str("metrics.names").upper()],
            partition_limit=self._find_partition_limit,
            interval_ms=lambda: self._context.config().get_int("metrics.otlp.interval.ms"),
            started_s=self._started.monotonic_s,
            logger=logger,
        )
        self._push.start(self._tasks)
        logger.info("metrics_pushed", f"metrics will be pushed to {self._push.describe()}")

    def _load_describe_metrics(self) -> "Api":
        from penstock.metrics.describe_metrics import make_api

        return make_api(self._scraper.get)

    def _find_health(self) -> "Health":
        from penstock.metrics.endpoints import Health
        from penstock.server.broker_statistics import find_unready

        remaining = 0 if self._storage is None else self._storage.remaining_logs
        if self._state is BrokerState.RUNNING:
            return Health(self._state, find_unready(self._context, self._parts), remaining)
        not_ready = self._state.name.lower().replace("_", " ")
        return Health(self._state, f"the broker is in state {not_ready}", remaining)

    async def _identify(self, config: EffectiveConfig, storage: BrokerStorage) -> BrokerIdentity:
        missing = find_missing(self._disk, StorageConfig.from_broker(config).log_dirs)
        directories = storage.lock()
        self._new_directories = NewDirectories(self._disk, directories, missing)
        engine = StorageConfig.from_broker(config).engine
        check_engine(self._disk, directories, engine)
        owner = read_owner(self._disk, directories)
        self._store = await open_broker_store(
            config,
            disk=self._disk,
            directory=directories[0],
            executor=storage.thread,
            logger=self._loggers.get("metadata_store"),
        )
        # A failed store ends the broker: it could not learn who leads any more.
        self._tasks.create_task(self._store.store.wait_end(), name="metadata-store")
        return await establish_identity(
            ServerConfig.from_broker(config),
            owner,
            store=self._store,
            disk=self._disk,
            directories=directories,
            engine=engine,
        )

    async def _check_replicas(
        self, config: EffectiveConfig, identity: BrokerIdentity, storage: BrokerStorage
    ) -> None:
        """Find what was lost while the broker was down, before it can be elected. Not while another
        process has the broker id: its replicas are whole, and this report would take them out of
        the ISR."""
        recovered = RecoveredLogs(storage.engine, storage.recovered)
        if not ServerConfig.from_broker(config).is_clustered:
            await report_lost(self._store, identity.broker_id, recovered, self._logger)
            return
        await self._store.ask_at_startup(
            lambda session: check_id_is_free(session, identity.broker_id, self.addresses.registered)
        )
        self._incarnation = BrokerIncarnation(
            identity.broker_id, disk=self._disk, directories=storage.lock(), logger=self._logger
        )
        await self._incarnation.check_replicas(self._store, recovered)

    def _build_context(
        self,
        identity: BrokerIdentity,
        storage: BrokerStorage,
        dynamic_config: DynamicBrokerConfig,
    ) -> BrokerContext:
        self._timers = LoopTimers()
        self._tasks.create_task(self._timers.run(), name="timers")
        metadata = MetadataCache()
        replicas = ReplicaManager(
            broker_id=identity.broker_id,
            engine=storage.engine,
            metadata=metadata,
            effective_config=dynamic_config,
            timers=self._timers,
            wall_ms=wall_ms,
            logger=self._loggers.get("replication"),
        )
        replicas.adopt(storage.recovered)
        return BrokerContext(
            broker_id=identity.broker_id,
            config=dynamic_config,
            timers=self._timers,
            wall_ms=wall_ms,
            metadata=metadata,
            replicas=replicas,
            tasks=self._tasks,
            get_logger=self._loggers.get,
            logs_ready=asyncio.Event(),
        )

    def _bind(self, max_connections: int) -> None:
        config = self._context.config()
        self._server = build_server(
            self._parts.dispatcher,
            config,
            timers=self._timers,
            max_connections=max_connections,
            logger=self._loggers.get("network"),
            quotas=self._quotas.enforced,
            audit=self._parts.audit,
        )
        self.addresses = bind_listeners(
            self._server, config, self._tls, self._logins.listeners if self._logins else {}
        )
        self._reload_tls(config)
        self._parts.advertised.update(self.addresses.advertised)

    def _load_tls(self, config: EffectiveConfig) -> "Mapping[str, ServerTls]":
        if not any(protocol.endswith("SSL") for protocol in secured_listeners(config).values()):
            return {}
        # Imported here because most brokers have no listener with TLS.
        from penstock.server.listener_tls import load_listener_tls

        return load_listener_tls(config)

    def _make_logins(self, config: EffectiveConfig) -> "BrokerLogins | None":
        has_sasl = any(name.startswith("SASL") for name in secured_listeners(config).values())
        if not has_sasl and not config.find_str("penstock.admin.user"):
            return None
        # Imported here because most brokers have no listener with SASL.
        from penstock.server.broker_logins import BrokerLogins

        return BrokerLogins(config)

    def _build_scram_store(self) -> "ScramStore":
        """On the first use: with SASL at start-up, else by a request about users."""
        from penstock.controller.scram_store import ScramStore
        from penstock.security.sasl.scram_users import ScramUsers

        users = ScramUsers() if self._logins is None else self._logins.users
        return ScramStore(self._store.session, users, self._loggers.get("security"))

    def _reload_tls(self, config: EffectiveConfig) -> None:
        if not self._tls:
            return
        from penstock.server.listener_tls import CertificateReloader

        reloader = CertificateReloader(
            self._tls,
            interval_ms=config.get_int("penstock.ssl.reload.interval.ms"),
            logger=self._loggers.get("security"),
        )
        self._reloading = self._tasks.create_task(reloader.run(), name="certificates")

    async def _serve(self, storage: BrokerStorage) -> None:
        parts = self._parts
        if parts.links.serves_brokers_before_registration:
            self._server.start()
        await self._register()
        await storage.flush_recovered()
        self._storage_jobs = StorageJobs(
            storage.engine, storage.background, wall_ms, self._check_disks
        )
        self._tasks.create_task(self._storage_jobs.run(), name="storage-jobs")
        self._context.logs_ready.set()
        if not parts.links.serves_brokers_before_registration:
            self._server.start()
        parts.dispatcher.open()

    async def _register(self) -> None:
        """Returns when this broker has applied the controller's requests of this registration."""
        context, parts = self._context, self._parts
        applied = asyncio.Event()

        def check_applied() -> None:
            """The full UpdateMetadata comes last, after every LeaderAndIsr of this broker epoch."""
            node = context.metadata.brokers.get(context.broker_id)
            if node is not None and node.epoch == parts.handler.broker_epoch:
                applied.set()

        context.metadata.listen(lambda update: check_applied())
        registration = build_registration(
            context,
            store=self._store,
            controller=parts.controller,
            handler=parts.handler,
            endpoints=self.addresses.registered,
            incarnation=self._incarnation,
        )
        await retry_at_startup(
            registration.register,
            registration.replace_session,
            timeout_ms=self._store.startup_timeout_ms,
        )
        check_applied()  # the controller may have been faster than the store's response
        self._tasks.create_task(registration.run(), name="controller")
        await applied.wait()

    def _check_disks(self) -> None:
        """Replicas of a failed log dir go offline; a broker without any log dir ends."""
        assert self._storage is not None
        self._context.replicas.handle_log_failures()
        self._storage.engine.check_any_works()

    # -- stop ------------------------------------------------------------------------------

    async def close(self) -> None:
        """A clean stop: requests under way are answered, and the next start recovers nothing."""
        assert self._storage is not None
        parts, replicas = self._parts, self._context.replicas
        started_s = time.monotonic()
        self._logger.info("stopping", "clean shutdown")
        self._stalls.threshold_ms = None
        self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await parts.links.shut_down_controlled()
        self._state = BrokerState.SHUTTING_DOWN
        self._server.stop_requests()
        for coordinator in (parts.group_coordinator.find(), parts.transaction_coordinator.find()):
            if coordinator is not None:
                coordinator.close()  # clients that wait are sent to the next coordinator
        parts.deferred.close()
        replicas.produce_purgatory.expire_all()
        replicas.fetch_purgatory.expire_all()
        await self._server.close(DRAIN_MS)
        if self._audit_log is not None:
            await self._audit_log.close()
        await parts.controller.close()
        await parts.links.close()
        if self._following_acls is not None:
            self._following_acls.cancel()
        if self._logins is not None:
            self._logins.close()
        if self._following_quotas is not None:
            self._following_quotas.cancel()
        self._storage_jobs.stop()
        self._timers.stop()
        await self._storage.close()
        await self._store.close()
        if self._push is not None:
            self._push.stop()
        if self._reloading is not None:
            self._reloading.cancel()
        if self._metrics is not None:
            await self._metrics.close()
        self._logger.info("stopped", duration_ms=round((time.monotonic() - started_s) * 1000))

    def abandon(self) -> None:
        """Release what `close` did not, as a crash would: the next start recovers. A start that
        was refused leaves no new directory behind."""
        if self._metrics is not None:
            self._metrics.abandon()
        if self._new_directories is not None:
            self._new_directories.remove(self._logger)
        if self._storage is not None:
            self._storage.abandon()

    def _keep_directories(self) -> None:
        assert self._new_directories is not None
        self._new_directories.keep()


def _load_end_delayed() -> "Api":
    from penstock.inter_broker.apis.end_delayed import API

    return API


def _load_describe_replicas() -> "Api":
    from penstock.metrics.describe_replicas import API

    return API


def _load_describe_offset_times() -> "Api":
    from penstock.metrics.describe_offset_times import API

    return API
