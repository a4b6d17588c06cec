"""Verifies with a transaction's coordinator that partitions belong to it, before a leader appends.

In process if the coordinator is this broker, else with AddPartitionsToTxn: one request at a time
per broker, with all that is pending. It caches nothing: the partition decides how long a result
holds (KIP-890).
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


class _Verification(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    done: Verified
    backed_off_ms: int = 0  # before this attempt

    def all_with(self, code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(self.partitions, code)


_CodesOf = Callable[[_Verification], _Codes]


class TransactionVerifier:
    """Implements `apis.VerifiesTransactions`. Owned by the event loop."""

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
        self._batcher: RequestBatcher[_Verification] = RequestBatcher(
            self._verify_remotely,
            key=lambda item: item.transactional_id,
            partitions=lambda item: len(item.partitions),
            run=run,
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
        self._start(
            _Verification(
                transactional_id, producer_id, producer_epoch, tuple(partitions), adds, done
            )
        )

    def _start(self, verification: _Verification) -> None:
        broker = self._find_coordinator(verification.transactional_id)
        if broker is None:
            verification.done(verification.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif broker == self._own_id:
            self._run(self._verify_here(verification))
        elif not self._batcher.try_add(broker, verification):
            verification.done(verification.all_with(ErrorCode.NETWORK_EXCEPTION))

    def _find_coordinator(self, transactional_id: str) -> BrokerId | None:
        topic = self._metadata.find_topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return leader if leader in self._metadata.brokers else None

    def _settle(self, verification: _Verification, codes: _Codes) -> None:
        """Complete it, or retry while the producer's previous transaction is being ended."""
        config = self._config()
        backoff_ms = config.add_partitions_retry_backoff_ms
        backed_off_ms = verification.backed_off_ms + backoff_ms
        is_early = verification.adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        if is_early and backed_off_ms <= config.add_partitions_retry_backoff_max_ms:
            retry = verification._replace(backed_off_ms=backed_off_ms)
            self._timers.add_after(backoff_ms, lambda: self._start(retry))
            return
        verification.done({tp: _partition_code(codes.get(tp)) for tp in verification.partitions})

    # -- the coordinator is this broker ----------------------------------------------------

    async def _verify_here(self, verification: _Verification) -> None:
        coordinator = self._get_coordinator()
        producer = (
            verification.transactional_id,
            verification.producer_id,
            verification.producer_epoch,
        )
        partitions = verification.partitions
        if verification.adds:
            code = await coordinator.add_partitions(*producer, partitions, version=_VERSIONS[-1])
            self._settle(verification, verification.all_with(code))
        else:
            codes = await coordinator.verify_partitions(*producer, partitions)
            self._settle(verification, codes)

    # -- the coordinator is another broker -------------------------------------------------

    async def _verify_remotely(
        self, broker: BrokerId, verifications: Sequence[_Verification]
    ) -> None:
        codes_of = await self._call(broker, verifications)
        for verification in verifications:
            self._settle(verification, codes_of(verification))

    async def _call(self, broker: BrokerId, verifications: Sequence[_Verification]) -> _CodesOf:
        node = self._metadata.brokers.get(broker)
        if node is None:
            return lambda verification: verification.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            response = await self._brokers.call(
                node,
                _add_partitions_request(verifications),
                timeout_ms=self._config().request_timeout_ms,
            )
        except ConnectionError:
            return lambda verification: verification.all_with(ErrorCode.NETWORK_EXCEPTION)
        return _read(response)


def _add_partitions_request(verifications: Sequence[_Verification]) -> Call:
    transactions = [
        {
            "transactional_id": verification.transactional_id,
            "producer_id": verification.producer_id,
            "producer_epoch": verification.producer_epoch,
            "verify_only": not verification.adds,
            "topics": group_numbers(verification.partitions, "partitions"),
        }
        for verification in verifications
    ]
    return Call(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSIONS, {"transactions": transactions})


def _read(response: Any) -> _CodesOf:
    error = known_error(int(response.error_code))
    if error is not ErrorCode.NONE:
        return lambda verification: verification.all_with(error)
    results = {
        result.transactional_id: _codes(result) for result in response.results_by_transaction
    }
    return lambda verification: results.get(verification.transactional_id, {})


def _codes(result: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): known_error(
            int(partition.partition_error_code)
        )
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _partition_code(code: ErrorCode | None) -> ErrorCode:
    """The code that producers expect from a partition."""
    if code is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # missing in the response
    return _PARTITION_CODES.get(code, code)


_PARTITION_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # It concerns the brokers; the client was never checked for that permission.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}
