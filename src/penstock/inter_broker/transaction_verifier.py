"""Asks a transaction's coordinator whether partitions belong to it, for a leader about to write.

On this broker directly, elsewhere with AddPartitionsToTxn: one request at a time to each broker,
with all that has gathered. It keeps nothing: what an answer is worth, and for how long, is for the
partition to know (KIP-890).
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.transaction_service import Verified
from penstock.client.call import Call
from penstock.client.data_calls import group_numbers
from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.inter_broker.broker_connections import BrokerCalls
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.request_batcher import RequestBatcher
from penstock.model.cluster import TRANSACTIONS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.replication.metadata_cache import MetadataCache

if TYPE_CHECKING:
    from penstock.apis.transaction_service import TransactionService

_VERSIONS = range(4, 6)
_Codes = Mapping[TopicPartition, ErrorCode]


class _Question(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    done: Verified
    rested_ms: int = 0  # before this attempt

    def all_with(self, code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(self.partitions, code)


_CodesOf = Callable[[_Question], _Codes]


class TransactionVerifier:
    """Implements `handlers.VerifiesTransactions`. Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        get_coordinator: "Callable[[], TransactionService]",
        brokers: BrokerCalls,
        config: Callable[[], InterBrokerConfig],
        timers: CoordinatorTimers,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._get_coordinator = get_coordinator
        self._brokers = brokers
        self._config = config
        self._timers = timers
        self._run = run
        self._gathering: RequestBatcher[_Question] = RequestBatcher(
            self._ask_other, key=lambda each: each.transactional_id, run=run
        )

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
        self._ask(
            _Question(transactional_id, producer_id, producer_epoch, tuple(partitions), adds, done)
        )

    def _ask(self, question: _Question) -> None:
        broker = self._find_coordinator(question.transactional_id)
        if broker is None:
            question.done(question.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif broker == self._own_id:
            self._run(self._ask_own(question))
        elif not self._gathering.try_add(broker, question):
            question.done(question.all_with(ErrorCode.NETWORK_EXCEPTION))

    def _find_coordinator(self, transactional_id: str) -> BrokerId | None:
        topic = self._metadata.find_topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return leader if leader in self._metadata.brokers else None

    def _settle(self, question: _Question, codes: _Codes) -> None:
        """Told, or asked again where the transaction before is just being ended."""
        config = self._config()
        rest_ms = config.add_partitions_retry_backoff_ms
        rested_ms = question.rested_ms + rest_ms
        is_early = question.adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        if is_early and rested_ms <= config.add_partitions_retry_backoff_max_ms:
            again = question._replace(rested_ms=rested_ms)
            self._timers.add_after(rest_ms, lambda: self._ask(again))
            return
        question.done({each: _told(codes.get(each)) for each in question.partitions})

    # -- this broker -----------------------------------------------------------------------

    async def _ask_own(self, question: _Question) -> None:
        coordinator = self._get_coordinator()
        asked = (question.transactional_id, question.producer_id, question.producer_epoch)
        if question.adds:
            code = await coordinator.add_partitions(
                *asked, question.partitions, version=_VERSIONS[-1]
            )
            self._settle(question, question.all_with(code))
        else:
            self._settle(question, await coordinator.verify_partitions(*asked, question.partitions))

    # -- another broker --------------------------------------------------------------------

    async def _ask_other(self, broker: BrokerId, asked: Sequence[_Question]) -> None:
        codes = await self._call(broker, asked)
        for question in asked:
            self._settle(question, codes(question))

    async def _call(self, broker: BrokerId, asked: Sequence[_Question]) -> _CodesOf:
        node = self._metadata.brokers.get(broker)
        if node is None:
            return lambda each: each.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        timeout_ms = self._config().request_timeout_ms
        try:
            answer = await self._brokers.call(
                node, _add_partitions_call(asked), timeout_ms=timeout_ms
            )
        except ConnectionError:
            return lambda each: each.all_with(ErrorCode.NETWORK_EXCEPTION)
        return _read(answer)


def _add_partitions_call(asked: Sequence[_Question]) -> Call:
    transactions = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "verify_only": not each.adds,
            "topics": group_numbers(each.partitions, "partitions"),
        }
        for each in asked
    ]
    return Call(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSIONS, {"transactions": transactions})


def _read(answer: Any) -> _CodesOf:
    refused = known_error(int(answer.error_code))
    if refused is not ErrorCode.NONE:
        return lambda each: each.all_with(refused)
    found = {each.transactional_id: _codes(each) for each in answer.results_by_transaction}
    return lambda each: found.get(each.transactional_id, {})


def _codes(result: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): known_error(
            int(each.partition_error_code)
        )
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _told(code: ErrorCode | None) -> ErrorCode:
    """As those who write to a partition know it."""
    if code is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # it was not answered
    return _AT_A_PARTITION.get(code, code)


_AT_A_PARTITION = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Between brokers: the client was never asked for that permission.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}
