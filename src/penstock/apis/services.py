"""The services of the broker that handlers may use; handlers do not use each other.

Built once at start-up; everything in it belongs to the event loop's thread.
"""

from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.apis.cluster.metadata import MetadataResponseCache
from penstock.apis.config import ApiConfig
from penstock.apis.fetch_sessions import FetchSessions
from penstock.apis.inter_broker_access import InterBroker
from penstock.apis.transaction_service import NobodyVerifies, VerifiesTransactions
from penstock.config.effective_config import EffectiveConfig
from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig
from penstock.controller.interface import Administration
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerId, Endpoint
from penstock.model.producer_ids import ProducerIds
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import Clock, ReplicaManager
from penstock.security.access_log import AccessLog
from penstock.security.audit.trail import NO_AUDIT, AuditTrail
from penstock.security.authorizer import Authorizer
from penstock.security.quotas.client_quotas import NO_QUOTAS, ClientQuotas
from penstock.storage.engine import Engine

if TYPE_CHECKING:
    from penstock.apis.api import Api
    from penstock.apis.deferred_service import DeferredService
    from penstock.apis.group_service import GroupService
    from penstock.apis.transaction_service import TransactionService
    from penstock.controller.acl_store import ChangesAcls
    from penstock.controller.quota_store import ChangesQuotas
    from penstock.controller.scram_store import KeepsScramUsers


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    broker_id: BrokerId
    cluster_id: str
    metadata: MetadataCache
    replicas: ReplicaManager
    engine: Engine  # for log directories; partitions go through `replicas`
    administration: Administration
    get_groups: Callable[[], "GroupService"]  # the coordinator, built lazily
    get_transactions: Callable[[], "TransactionService"]  # likewise
    get_deferred: Callable[[], "DeferredService"]  # likewise
    producer_ids: ProducerIds
    authorizer: Authorizer
    timers: Clock  # purgatory.LoopTimers, or a manual clock in tests
    wall_ms: Callable[[], int]
    config: Callable[[], ApiConfig]  # the handlers' settings, as of now
    effective_config: Callable[[], EffectiveConfig]  # in full, to describe and to resolve
    # Listener name -> the advertised endpoint. For a listener that is absent, clients get the
    # address that they connected to.
    advertised: Mapping[str, Endpoint]
    fetch_sessions: FetchSessions
    run: Callable[[Coroutine[Any, Any, None]], None]  # as a task of the broker's group
    logger: EventLogger  # one line of the broker's log
    static_config: RawConfig = EMPTY_RAW_CONFIG  # server.properties and --set, as given
    # Private requests that clients may send, by key; each API is built on its first request.
    client_apis: Mapping[PrivateKey, Callable[[], "Api"]] = field(default_factory=dict)
    inter_broker: InterBroker | None = None  # None: a single node, which has no other brokers
    get_transaction_verifier: Callable[[], VerifiesTransactions] = NobodyVerifies  # likewise
    full_half_groups: AbstractSet[str] = frozenset()  # whose halves are as many as may be held
    access_log: AccessLog = field(default_factory=AccessLog)
    acls: "ChangesAcls | None" = None  # None: no authorizer is configured
    get_scram_users: "Callable[[], KeepsScramUsers] | None" = None  # built lazily
    audit: AuditTrail = NO_AUDIT
    quotas: ClientQuotas = NO_QUOTAS  # as they are enforced
    stored_quotas: "ChangesQuotas | None" = None  # None: in tests of other handlers
    metadata_responses: MetadataResponseCache = field(default_factory=MetadataResponseCache)

    @property
    def groups(self) -> "GroupService":
        return self.get_groups()

    @property
    def transactions(self) -> "TransactionService":
        return self.get_transactions()

    @property
    def scram_users(self) -> "KeepsScramUsers":
        assert self.get_scram_users is not None, "every broker has a metadata store"
        return self.get_scram_users()

    @property
    def deferred(self) -> "DeferredService":
        return self.get_deferred()
