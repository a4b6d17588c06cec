"""The transaction coordinator of a broker: the requests of the transaction APIs, by transactional
id.

Finds the shard of each id and runs a command on it; a client's fault is a reply, never an
exception. Owned by the event loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.load_times import LoadStatistics
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import Command, CoordinatorResult, Waiter
from penstock.coordinators.transaction import queries
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.dependencies import MarkerChannel, PartitionLookup
from penstock.coordinators.transaction.end_transaction import end_transaction
from penstock.coordinators.transaction.init_producer_id import check_init, init_producer_id
from penstock.coordinators.transaction.partitions import add_partitions, verify_partitions
from penstock.coordinators.transaction.producer_epochs import NeedsProducerId
from penstock.coordinators.transaction.records import Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ListedTransactions,
    ListTransactions,
    ProducerIdAndEpoch,
    TransactionSummary,
)
from penstock.coordinators.transaction.shard import TransactionDependencies, TransactionShard
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.coordinators.transaction.transaction_version import version_of_add, version_of_end
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import ProducerIds

ReplyType = TypeVar("ReplyType")

TransactionCommand = Command[TransactionShardState, ReplyType, TransactionRecord]
# A command that may need a fresh producer id: it gets None until it replies that it does.
CommandWithId = Callable[
    [TransactionShardState, int, int | None],
    CoordinatorResult[ReplyType | NeedsProducerId, TransactionRecord],
]

MAX_ID_BYTES = 32_767  # of a string in a record's key


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorStatistics:
    shards: int
    loading: int
    transactional_ids: int
    ongoing: int
    pending_markers: int  # transactions decided, but not marked in all their partitions
    waiting: int  # requests that wait for a reply
    unexpected_errors: int  # each reloaded a shard from its log
    loads: LoadStatistics
    timed_out: int  # transactions that this coordinator aborted


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    NAME = "transaction coordinator"

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        partitions: PartitionLookup,
        producer_ids: ProducerIds,
        markers: MarkerChannel,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], TransactionConfig],
        logger: EventLogger,
    ) -> None:
        super().__init__(log=log, timers=timers, wall_ms=wall_ms, logger=logger)
        self._timed_out = 0
        self._config = config
        self._producer_ids = producer_ids
        self._partitions = partitions
        self._wall_ms = wall_ms
        self._dependencies = TransactionDependencies(
            log=log,
            timers=timers,
            channel=markers,
            partitions=partitions,
            wall_ms=wall_ms,
            config=config,
            logger=logger,
            notes=self._notes,
            load_again=self._load_again,
            on_unexpected_error=self._on_unexpected_error,
            on_timed_out=self._count_timed_out,
        )

    def _new_shard(self, partition: int) -> TransactionShard:
        return TransactionShard(partition, self._dependencies)

    def _count_timed_out(self, count: int) -> None:
        self._timed_out += count

    def _planned_partitions(self) -> int:
        return self._config().topic_partitions

    def on_leaders_changed(self) -> None:
        """Markers that could not be delivered may be deliverable now."""
        for shard in list(self._shards.values()):
            shard.on_leaders_changed()

    # -- producers -------------------------------------------------------------------------

    async def init_producer_id(self, request: InitProducerId) -> InitProducerIdReply:
        refusal = check_init(request, self._config())
        if refusal is not ErrorCode.NONE:
            return InitProducerIdReply(code=refusal)
        reply = await self._run_with_id(
            request.transactional_id,
            lambda state, now_ms, new_id: init_producer_id(
                state.transactions, request, new_producer_id=new_id, now_ms=now_ms
            ),
        )
        return InitProducerIdReply(code=reply.code) if isinstance(reply, Failed) else reply

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        version: int,
        connection: int | None = None,
    ) -> ErrorCode:
        """`version` is the request's; a newer `connection` has a higher number."""

        def decide(
            state: TransactionShardState, _: Waiter, now_ms: int
        ) -> CoordinatorResult[ErrorCode, TransactionRecord]:
            result = add_partitions(
                state.transactions,
                transactional_id,
                ProducerIdAndEpoch(producer_id, producer_epoch),
                partitions,
                version=version_of_add(version),
                now_ms=now_ms,
            )
            if result.records and not all(map(self._partitions.has_partition, partitions)):
                # One unknown here would count as deleted when the markers are sent.
                return CoordinatorResult(reply=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if result.reply is ErrorCode.NONE and connection:
                state.connections.note(transactional_id, connection)
            return result

        reply = await self._run(transactional_id, decide)
        return reply.code if isinstance(reply, Failed) else reply

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        claimed = ProducerIdAndEpoch(producer_id, producer_epoch)
        reply = await self._run(
            transactional_id,
            lambda state, _, now_ms: CoordinatorResult(
                reply=verify_partitions(state.transactions, transactional_id, claimed, partitions)
            ),
        )
        return dict.fromkeys(partitions, reply.code) if isinstance(reply, Failed) else reply

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        version: int,
        connection: int | None = None,
    ) -> EndTxnReply:
        """`version` is the request's; a newer `connection` has a higher number."""
        claimed = ProducerIdAndEpoch(producer_id, producer_epoch)
        reply = await self._run_with_id(
            transactional_id,
            lambda state, now_ms, new_id: end_transaction(
                state.transactions,
                transactional_id,
                claimed,
                commit=commit,
                version=version_of_end(version),
                is_from_abandoned_connection=connection is not None
                and state.connections.is_abandoned(transactional_id, connection),
                new_producer_id=new_id,
                now_ms=now_ms,
            ),
        )
        return EndTxnReply(reply.code) if isinstance(reply, Failed) else reply

    # -- running commands ------------------------------------------------------------------

    async def _run_with_id(
        self, transactional_id: str, command: CommandWithId[ReplyType]
    ) -> ReplyType | Failed:
        """The controller allocates producer ids, which takes time. The state may have changed
        meanwhile, so the command decides again."""
        reply = await self._run(
            transactional_id, lambda state, _, now_ms: command(state, now_ms, None)
        )
        if not isinstance(reply, NeedsProducerId):
            return reply
        try:
            new_id = await self._producer_ids.next_producer_id()
        except Refusal as refusal:
            return Failed(refusal.code)
        reply = await self._run(
            transactional_id, lambda state, _, now_ms: command(state, now_ms, new_id)
        )
        assert not isinstance(reply, NeedsProducerId)
        return reply

    async def _run(
        self, transactional_id: str, command: TransactionCommand[ReplyType]
    ) -> ReplyType | Failed:
        shard = self._find_shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return Failed(shard)
        return await shard.run(command)

    def _find_shard_of(self, transactional_id: str) -> TransactionShard | ErrorCode:
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            return ErrorCode.INVALID_REQUEST
        return self._find_shard(transactional_id)

    # -- queries ---------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        shard = self._find_shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return DescribedTransaction(transactional_id=transactional_id, code=shard)
        return shard.describe(transactional_id)

    def list(self, filters: ListTransactions) -> ListedTransactions:
        """List the transactions of this broker's shards only."""
        if self._closed.is_set():
            return ListedTransactions(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shards = [shard for shard in self._shards.values() if shard.is_led]
        if any(shard.status is Status.LOADING for shard in shards):
            return ListedTransactions(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        listings: list[TransactionSummary] = []
        for shard in shards:
            listings += queries.list_transactions(
                shard.state.transactions, filters, self._wall_ms()
            )
        unknown = tuple(sorted(filters.states - queries.STATES))
        return ListedTransactions(ErrorCode.NONE, unknown, tuple(listings))

    def iter_prepared(self, prefix: str) -> Iterator[tuple[str, Transaction]]:
        """Two-phase transactions of this broker's shards that wait for their decision, and whose
        transactional ids begin like this."""
        for shard in self._shards.values():
            if not (shard.is_active and shard.is_led):
                continue
            for transactional_id in shard.state.ongoing():
                transaction = shard.state.transactions[transactional_id]
                if transactional_id.startswith(prefix) and transaction.is_two_phase:
                    yield transactional_id, transaction

    def statistics(self) -> TransactionCoordinatorStatistics:
        shards = self._shards.values()
        return TransactionCoordinatorStatistics(
            shards=len(shards),
            loading=sum(shard.status is Status.LOADING for shard in shards),
            transactional_ids=sum(len(shard.state.transactions) for shard in shards),
            ongoing=sum(len(shard.state.ongoing()) for shard in shards),
            pending_markers=sum(shard.pending_markers for shard in shards),
            waiting=sum(shard.waiting for shard in shards),
            unexpected_errors=self._unexpected_errors,
            loads=self._loads,
            timed_out=self._timed_out,
        )
