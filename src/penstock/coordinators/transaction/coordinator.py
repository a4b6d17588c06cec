"""The transaction coordinator of a broker: what handlers ask, by transactional id.

Finds the shard of each id and has it decide; faults of clients are answers, never exceptions.
Owned by the event loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers, Report
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.transaction import end_transaction as ending
from penstock.coordinators.transaction import init_producer_id as init_producer
from penstock.coordinators.transaction import partitions as partition_commands
from penstock.coordinators.transaction import queries
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.dependencies import (
    KnownPartitions,
    MarkerChannel,
)
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ListedTransactions,
    ListTransactions,
    ProducerIdAndEpoch,
    TransactionListing,
)
from penstock.coordinators.transaction.result import (
    NeedsProducerId,
    TransactionResult,
    find_stranger,
)
from penstock.coordinators.transaction.shard import (
    Command,
    TransactionDependencies,
    TransactionShard,
)
from penstock.coordinators.transaction.transaction_version import (
    bumps_epoch,
    version_of_add,
    version_of_end,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import ProducerIds

Answer = TypeVar("Answer")

# A command that may need an id that nobody has had: None until it says so.
CommandWithId = Callable[[Mapping[str, Transaction], int, int | None], TransactionResult[Answer]]

MAX_ID_BYTES = 32_767  # of a text in a record's key


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorStatistics:
    shards: int
    loading: int
    transactional_ids: int
    ongoing: int
    untold: int  # decided, and not known to every partition
    waiting: int  # requests that wait for an answer


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    def __init__(
        self,
        *,
        log: CoordinatorLog,
        partitions: KnownPartitions,
        producer_ids: ProducerIds,
        markers: MarkerChannel,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], TransactionConfig],
        report: Report,
    ) -> None:
        super().__init__(log=log, timers=timers)
        self._config = config
        self._producer_ids = producer_ids
        self._wall_ms = wall_ms
        self._around = TransactionDependencies(
            log=log,
            timers=timers,
            channel=markers,
            known=partitions,
            wall_ms=wall_ms,
            config=config,
            report=report,
            load_again=self._load_again,
        )

    def _new_shard(self, partition: int) -> TransactionShard:
        return TransactionShard(partition, self._around)

    def _planned_partitions(self) -> int:
        return self._config().topic_partitions

    def on_leaders_changed(self) -> None:
        """Markers that did not get through may do so now."""
        for shard in list(self._shards.values()):
            shard.on_leaders_changed()

    # -- producers -------------------------------------------------------------------------

    async def init_producer_id(self, request: InitProducerId) -> InitProducerIdReply:
        refusal = init_producer.refuse(request, self._config())
        if refusal is not ErrorCode.NONE:
            return InitProducerIdReply(code=refusal)
        answer = await self._ask_with_id(
            request.transactional_id,
            lambda known, now_ms, new_id: init_producer.init_producer(
                known, request, new_producer_id=new_id, now_ms=now_ms
            ),
        )
        return InitProducerIdReply(code=answer.code) if isinstance(answer, Failed) else answer

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
        """`version` is the request's; `connection` rises from one that is made to the next."""

        def decide(known: Mapping[str, Transaction], now_ms: int) -> TransactionResult[ErrorCode]:
            outcome = partition_commands.add_partitions(
                known,
                transactional_id,
                ProducerIdAndEpoch(producer_id, producer_epoch),
                partitions,
                version=version_of_add(version),
                now_ms=now_ms,
            )
            if outcome.records and not all(map(self._around.known.has_partition, partitions)):
                # One that is not known here would be taken for deleted when markers are sent.
                return TransactionResult(answer=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            shard = self._find_for(transactional_id)
            if (
                outcome.answer is ErrorCode.NONE
                and connection
                and isinstance(shard, TransactionShard)
            ):
                shard.connections.note(transactional_id, connection)
            return outcome

        answer = await self._ask(transactional_id, decide)
        return answer.code if isinstance(answer, Failed) else answer

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        claimed = ProducerIdAndEpoch(producer_id, producer_epoch)
        answer = await self._ask(
            transactional_id,
            lambda known, now_ms: TransactionResult(
                answer=partition_commands.verify_partitions(
                    known, transactional_id, claimed, partitions
                )
            ),
        )
        return dict.fromkeys(partitions, answer.code) if isinstance(answer, Failed) else answer

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
        """`version` is the request's; `connection` rises from one that is made to the next."""
        claimed = ProducerIdAndEpoch(producer_id, producer_epoch)
        if self._is_late(transactional_id, claimed, connection, version):
            return EndTxnReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        answer = await self._ask_with_id(
            transactional_id,
            lambda known, now_ms, new_id: ending.end(
                known,
                transactional_id,
                claimed,
                commit=commit,
                version=version_of_end(version),
                new_producer_id=new_id,
                now_ms=now_ms,
            ),
        )
        return EndTxnReply(answer.code) if isinstance(answer, Failed) else answer

    def _is_late(
        self,
        transactional_id: str,
        claimed: ProducerIdAndEpoch,
        connection: int | None,
        version: int,
    ) -> bool:
        """An end that a client of old has given up on and repeated elsewhere: its epoch does not
        tell it from the end of the transaction that is open by now (KAFKA-17754). A fenced producer
        has left its connection too, but is to learn that it is fenced, not to try again."""
        shard = self._find_for(transactional_id)
        if isinstance(shard, ErrorCode) or bumps_epoch(version_of_end(version)):
            return False
        known = shard.state.known.get(transactional_id)
        if connection is None or known is None or known.state is not State.ONGOING:
            return False
        if find_stranger(known, claimed) is not ErrorCode.NONE:
            return False
        return shard.connections.is_left(transactional_id, connection)

    # -- asking a shard --------------------------------------------------------------------

    async def _ask_with_id(
        self, transactional_id: str, command: CommandWithId[Answer]
    ) -> Answer | Failed:
        """Ids come from the controller and take time: meanwhile the state may have changed, so the
        command decides anew."""
        answer = await self._try(
            transactional_id, lambda known, now_ms: command(known, now_ms, None)
        )
        if not isinstance(answer, NeedsProducerId):
            return answer
        try:
            new_id = await self._producer_ids.next_producer_id()
        except Refusal as refusal:
            return Failed(refusal.code)
        return await self._ask(
            transactional_id, lambda known, now_ms: command(known, now_ms, new_id)
        )

    async def _ask(self, transactional_id: str, command: Command[Answer]) -> Answer | Failed:
        answer = await self._try(transactional_id, command)
        assert not isinstance(answer, NeedsProducerId)
        return answer

    async def _try(
        self, transactional_id: str, command: Command[Answer]
    ) -> Answer | NeedsProducerId | Failed:
        shard = self._find_for(transactional_id)
        if isinstance(shard, ErrorCode):
            return Failed(shard)
        return await shard.run(command)

    def _find_for(self, transactional_id: str) -> TransactionShard | ErrorCode:
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            return ErrorCode.INVALID_REQUEST
        return self._find_shard(transactional_id)

    # -- looking ---------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        shard = self._find_for(transactional_id)
        if isinstance(shard, ErrorCode):
            return DescribedTransaction(transactional_id=transactional_id, code=shard)
        return shard.describe(transactional_id)

    def list(self, asked: ListTransactions) -> ListedTransactions:
        """Of the shards here; of none, where other brokers lead them all."""
        if self._closed.is_set():
            return ListedTransactions(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shards = [each for each in self._shards.values() if each.is_led]
        if any(each.status is Status.LOADING for each in shards):
            return ListedTransactions(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found: list[TransactionListing] = []
        for shard in shards:
            found += queries.list_transactions(shard.state.known, asked, self._wall_ms())
        unknown = tuple(sorted(asked.states - queries.STATES))
        return ListedTransactions(ErrorCode.NONE, unknown, tuple(found))

    def statistics(self) -> TransactionCoordinatorStatistics:
        shards = self._shards.values()
        return TransactionCoordinatorStatistics(
            shards=len(shards),
            loading=sum(each.status is Status.LOADING for each in shards),
            transactional_ids=sum(len(each.state.known) for each in shards),
            ongoing=sum(len(each.state.ongoing()) for each in shards),
            untold=sum(each.untold for each in shards),
            waiting=sum(each.waiting for each in shards),
        )
