"""Whether a transactional batch may be appended: by the log's state, or verified by the
coordinator.

Verify first, then check each partition at the moment of the append. Invariant: NONE only for a
transaction that was open after its producer's last marker, under the leadership that appends the
batch (KIP-890).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.partition import PartitionLeadership
from penstock.replication.transaction_verification import Verification

if TYPE_CHECKING:
    from penstock.apis.services import Services


class _PendingVerification(NamedTuple):
    leadership: PartitionLeadership
    verification: Verification


class TransactionCheck:
    """The check of one producer in one request. Call `verify`, and when that is done `find_refusal`
    right before the append, with nothing awaited in between."""

    def __init__(
        self,
        services: "Services",
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        adds: bool,
    ) -> None:
        self._services = services
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._adds = adds  # transactions v2: the first batch adds its partition
        self._is_needed = adds or services.config().verifies_transactions
        self._pending: dict[TopicPartition, _PendingVerification] = {}
        self._results: dict[TopicPartition, ErrorCode] = {}

    def verify(self, partitions: Sequence[TopicPartition], done: Callable[[], None]) -> None:
        """`done` is called, now or later, once the coordinator has verified what the log cannot."""
        for tp in partitions:
            self._begin(tp)
        if not self._pending:
            done()
            return

        def on_verified(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            self._finish(codes)
            done()

        self._services.get_transaction_verifier().verify(
            self._transactional_id,
            self._producer_id,
            self._producer_epoch,
            list(self._pending),
            adds=self._adds,
            done=on_verified,
        )

    def _begin(self, tp: TopicPartition) -> None:
        partition = self._services.replicas.find(tp)
        leadership = None if partition is None else partition.leadership
        if partition is None or leadership is None or not self._is_needed:
            return
        producers = partition.log.producers
        producer = self._producer_id, self._producer_epoch
        if not producers.has_transaction(*producer) and not producers.is_fenced(*producer):
            verification = leadership.verifications.begin(*producer)
            self._pending[tp] = _PendingVerification(leadership, verification)

    def _finish(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        for tp, (leadership, verification) in self._pending.items():
            counts = leadership.verifications.end(verification)
            code = codes.get(tp, ErrorCode.NONE)
            is_over = code is ErrorCode.NONE and not counts
            self._results[tp] = ErrorCode.TRANSACTION_ABORTABLE if is_over else code

    def find_refusal(self, tp: TopicPartition) -> ErrorCode:
        """NONE: append. If this broker does not lead the partition, the append itself says so."""
        partition = self._services.replicas.find(tp)
        if partition is None or partition.leadership is None or not self._is_needed:
            return ErrorCode.NONE
        producers = partition.log.producers
        # The epoch before the state, so that a fenced producer learns that it is (KAFKA-20785).
        if producers.is_fenced(self._producer_id, self._producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        pending = self._pending.get(tp)
        if pending is not None and pending.leadership is partition.leadership:
            # Even if a transaction is open by now: it may be the next one.
            return self._results[tp]
        if producers.has_transaction(self._producer_id, self._producer_epoch):
            return ErrorCode.NONE
        return (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )  # the leadership changed: the producer retries, and is verified again
