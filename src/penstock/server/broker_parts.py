"""Builds the parts of a broker whose logs are recovered, in the order of their dependencies.

Only builds: `broker_server` starts and stops them. Coordinators are built lazily: on the first
client request, or when this broker becomes leader of a partition of the internal topic.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.api import Api
from penstock.apis.config import ApiConfig
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.fetch_sessions import FetchSessions
from penstock.apis.registry import APIS
from penstock.apis.services import Services
from penstock.config.cached_config import CachedConfig
from penstock.config.raw_config import RawConfig
from penstock.controller.controller import Controller
from penstock.controller.producer_ids import BlockProducerIds
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.io.disk import Disk
from penstock.model.cluster import DEFERRED_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Endpoint
from penstock.model.producer_ids import ProducerIds
from penstock.protocol.private_keys import PrivateKey
from penstock.security.audit.trail import AuditTrail
from penstock.server.authorization import Authorization
from penstock.server.broker_registration import make_election
from penstock.server.client_quotas import BrokerQuotas
from penstock.server.cluster_links import ClusterLinks, build_cluster_links
from penstock.server.config import ServerConfig
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import build_when_leading
from penstock.server.deferred_parts import DeferredParts, lazy_deferred_messages
from penstock.server.dynamic_config import DynamicBrokerConfig
from penstock.server.lazy import Lazy
from penstock.server.metadata_store import BrokerMetadataStore
from penstock.storage.engine import Engine

if TYPE_CHECKING:
    from penstock.controller.scram_store import ScramStore
    from penstock.coordinators.deferred.coordinator import DeferredCoordinator
    from penstock.coordinators.group.coordinator import GroupCoordinator
    from penstock.coordinators.transaction.coordinator import TransactionCoordinator
    from penstock.inter_broker.transaction_verifier import TransactionVerifier
    from penstock.replication.marker_append import MarkerCodes, MarkerWrite


class BrokerParts(NamedTuple):
    handler: ControllerRequestHandler
    links: ClusterLinks
    controller: Controller
    group_coordinator: "Lazy[GroupCoordinator]"
    transaction_coordinator: "Lazy[TransactionCoordinator]"
    deferred: DeferredParts
    quotas: BrokerQuotas
    audit: AuditTrail
    dispatcher: Dispatcher  # closed to clients until the broker is ready
    advertised: dict[str, Endpoint]  # to be filled once the listeners are bound


def build_parts(
    context: BrokerContext,
    *,
    raw_config: RawConfig,
    dynamic_config: DynamicBrokerConfig,
    cluster_id: str,
    store: BrokerMetadataStore,
    authorization: Authorization,
    get_scram_users: "Callable[[], ScramStore]",
    quotas: BrokerQuotas,
    audit: AuditTrail,
    engine: Engine,
    client_apis: Mapping[PrivateKey, Callable[[], Api]],
    disk: Disk,
) -> BrokerParts:
    handler = _build_request_handler(context, dynamic_config)
    links = build_cluster_links(context, handler)
    controller = _build_controller(context, raw_config, links, store)
    producer_ids = BlockProducerIds(store.session, context.broker_id)
    groups = _lazy_group_coordinator(context, links, store)
    verifier: Lazy[TransactionVerifier] = Lazy(
        lambda: _build_verifier(context, links, transactions)
    )
    deferred = lazy_deferred_messages(context, links, producer_ids, disk, groups, verifier)
    transactions: Lazy[TransactionCoordinator] = Lazy(
        lambda: _build_transaction_coordinator(
            context, links, producer_ids, groups, deferred.coordinator
        )
    )
    build_when_leading(transactions, TRANSACTIONS_TOPIC, context)
    advertised: dict[str, Endpoint] = {}
    services = Services(
        broker_id=context.broker_id,
        cluster_id=cluster_id,
        metadata=context.metadata,
        replicas=context.replicas,
        engine=engine,
        administration=links.administration,
        get_groups=groups.get,
        get_transactions=transactions.get,
        get_transaction_verifier=verifier.get,
        get_deferred=deferred.router.get,
        full_half_groups=deferred.full_groups,
        producer_ids=producer_ids,
        authorizer=authorization.authorizer,
        access_log=authorization.access_log,
        acls=authorization.acls,
        get_scram_users=get_scram_users,
        audit=audit,
        quotas=quotas.enforced,
        stored_quotas=quotas.store,
        timers=context.timers,
        wall_ms=context.wall_ms,
        config=CachedConfig(context.config, ApiConfig.from_broker),
        effective_config=context.config,
        advertised=advertised,
        fetch_sessions=FetchSessions(
            max_sessions=ServerConfig.from_broker(context.config()).fetch_session_slots
        ),
        run=context.run,
        logger=context.get_logger("requests"),
        static_config=raw_config,
        client_apis=client_apis,
        inter_broker=links.inter_broker,
    )
    return BrokerParts(
        handler=handler,
        links=links,
        controller=controller,
        group_coordinator=groups,
        transaction_coordinator=transactions,
        deferred=deferred,
        quotas=quotas,
        audit=audit,
        dispatcher=Dispatcher(APIS, services, serves_clients=False),
        advertised=advertised,
    )


def _build_request_handler(
    context: BrokerContext, dynamic_config: DynamicBrokerConfig
) -> ControllerRequestHandler:
    return ControllerRequestHandler(
        context.broker_id,
        replicas=context.replicas,
        metadata=context.metadata,
        dynamic_config=dynamic_config,
        logger=context.get_logger("inter_broker"),
    )


def _build_controller(
    context: BrokerContext,
    raw_config: RawConfig,
    links: ClusterLinks,
    store: BrokerMetadataStore,
) -> Controller:
    controller = Controller(
        session=store.session.current,
        election=make_election(context, store.session.current),
        channel=links.channel,
        broker_id=context.broker_id,
        static=raw_config,
        logger=context.get_logger("controller"),
        last_known=context.metadata,
        replica_sizes=links.replica_sizes,
    )
    links.join(controller)
    return controller


def _lazy_group_coordinator(
    context: BrokerContext, links: ClusterLinks, store: BrokerMetadataStore
) -> "Lazy[GroupCoordinator]":
    def build() -> "GroupCoordinator":
        from penstock.server.group_coordinator import build_group_coordinator

        return build_group_coordinator(
            context, administration=links.administration, session=store.session
        )

    coordinator = Lazy(build)
    if ServerConfig.from_broker(context.config()).keeps_offsets_in_zookeeper:
        coordinator.get()  # it forgets deleted topics even if no client ever asks for a group
    else:
        build_when_leading(coordinator, OFFSETS_TOPIC, context)
    return coordinator


def _build_transaction_coordinator(
    context: BrokerContext,
    links: ClusterLinks,
    producer_ids: ProducerIds,
    groups: "Lazy[GroupCoordinator]",
    deferred: "Lazy[DeferredCoordinator]",
) -> "TransactionCoordinator":
    from penstock.inter_broker.config import InterBrokerConfig
    from penstock.inter_broker.marker_sender import MarkerSender
    from penstock.replication.marker_append import append_markers
    from penstock.server.transaction_coordinator import build_transaction_coordinator

    config = CachedConfig(context.config, InterBrokerConfig.from_broker)

    async def write_here(markers: "Sequence[MarkerWrite]") -> "list[MarkerCodes]":
        return await append_markers(
            markers,
            replicas=context.replicas,
            coordinators={
                OFFSETS_TOPIC: lambda partition, marker: groups.get().end_transaction(
                    partition, marker
                ),
                DEFERRED_TOPIC: lambda partition, marker: deferred.get().end_transaction(
                    partition, marker
                ),
            },
            wall_ms=context.wall_ms,
            timeout_ms=config().request_timeout_ms,
        )

    return build_transaction_coordinator(
        context,
        administration=links.administration,
        producer_ids=producer_ids,
        markers=MarkerSender(
            context.broker_id,
            metadata=context.metadata,
            write_here=write_here,
            brokers=links.open_connections(),
            config=config,
            run=context.run,
        ),
    )


def _build_verifier(
    context: BrokerContext, links: ClusterLinks, transactions: "Lazy[TransactionCoordinator]"
) -> "TransactionVerifier":
    from penstock.inter_broker.config import InterBrokerConfig
    from penstock.inter_broker.transaction_verifier import TransactionVerifier

    return TransactionVerifier(
        context.broker_id,
        metadata=context.metadata,
        get_coordinator=transactions.get,
        brokers=links.open_connections(),
        config=CachedConfig(context.config, InterBrokerConfig.from_broker),
        timers=context.timers,
        run=context.run,
    )
