"""What a broker has for transactions: the coordinator, the sender of its markers, and the one who
asks coordinators for partitions. Each is loaded and built when it is needed first.

Only builds and ends them. Owned by the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from penstock.apis.transaction_service import Verified
from penstock.config.effective_config import EffectiveConfig
from penstock.controller.interface import Administration
from penstock.model.cluster import TRANSACTIONS_TOPIC, BrokerId
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import ProducerIds
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.lazy_coordinator import LateCoordinator

if TYPE_CHECKING:
    from penstock.apis.transaction_service import TransactionService
    from penstock.apis.transactions.marker_append import Codes, Wanted
    from penstock.inter_broker.broker_connections import BrokerConnections
    from penstock.inter_broker.transaction_verifier import TransactionVerifier
    from penstock.server.coordinator_log import LoopClock
    from penstock.server.transaction_wiring import Transactions


class TransactionParts:
    """Implements `handlers.VerifiesTransactions`."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        administration: Administration,
        producer_ids: ProducerIds,
        write_markers: "Callable[[Sequence[Wanted]], Awaitable[list[Codes]]]",
        listener: str | None,  # of brokers among themselves; None: a single node
        timers: "LoopClock",
        settings: Callable[[], EffectiveConfig],
        wall_ms: Callable[[], int],
        run: Callable[[Coroutine[Any, Any, None]], None],
        report: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._cluster = cluster
        self._administration = administration
        self._producer_ids = producer_ids
        self._write_markers = write_markers
        self._listener = listener
        self._timers = timers
        self._settings = settings
        self._wall_ms = wall_ms
        self._run = run
        self._report = report
        self._peers: list[BrokerConnections] = []
        self._verifier: TransactionVerifier | None = None
        self._late: LateCoordinator[TransactionService] = LateCoordinator(
            TRANSACTIONS_TOPIC, broker_id, cluster, self._build_coordinator
        )

    def get_service(self) -> "TransactionService":
        return self._late.get_service()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._late.start(tasks)

    def stop(self) -> None:
        """Whoever waits for the coordinator is sent elsewhere; before the server closes."""
        self._late.stop()

    async def close(self) -> None:
        """What other brokers are being asked gets no answer any more."""
        for each in self._peers:
            await each.close()

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Verified,
    ) -> None:
        if self._verifier is None:
            self._verifier = self._build_verifier()
        self._verifier.verify(
            transactional_id, producer_id, producer_epoch, partitions, adds=adds, done=done
        )

    def _build_verifier(self) -> "TransactionVerifier":
        from penstock.inter_broker.transaction_verifier import TransactionVerifier

        return TransactionVerifier(
            self._broker_id,
            cluster=self._cluster,
            get_coordinator=self.get_service,
            peers=self._find_peers(),
            settings=self._settings,
            timers=self._timers,
            run=self._run,
        )

    def _build_coordinator(self) -> "Transactions":
        from penstock.inter_broker.marker_sender import MarkerSender
        from penstock.server.transaction_wiring import Transactions

        markers = MarkerSender(
            self._broker_id,
            cluster=self._cluster,
            write_here=self._write_markers,
            peers=self._find_peers(),
            settings=self._settings,
            run=self._run,
        )
        return Transactions(
            broker_id=self._broker_id,
            replicas=self._replicas,
            cluster=self._cluster,
            administration=self._administration,
            producer_ids=self._producer_ids,
            markers=markers,
            timers=self._timers,
            settings=self._settings,
            wall_ms=self._wall_ms,
            report=self._report,
        )

    def _find_peers(self) -> "BrokerConnections | None":
        """Connections of their own for each: an answer that waits for replicas keeps those behind
        it waiting, and neither the controller's orders nor in-sync sets can wait for that."""
        if self._listener is None:
            return None
        from penstock.inter_broker.broker_connections import BrokerConnections

        peers = BrokerConnections(own_id=self._broker_id, listener=self._listener)
        self._peers.append(peers)
        return peers
