"""Whether a producer's transaction may be written to: the log knows it, or its coordinator says so.

For whoever appends transactional batches here. Asks first, then answers at the moment of the
append, for each partition. Invariant: NONE is said only of a transaction that was open after the
last marker of its producer, under the leadership that takes the batch (KIP-890).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.partition import PartitionLeadership
from penstock.replication.transaction_verification import Verification

if TYPE_CHECKING:
    from penstock.apis.services import Services


class _Question(NamedTuple):
    leadership: PartitionLeadership
    verification: Verification


class TransactionCheck:
    """Of one producer and one request. `ask`, and when it is done `find_refusal`, at once before
    the append and with nothing awaited in between."""

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
        self._adds = adds  # transactions v2: a first batch makes its partition part of it
        self._is_needed = adds or services.config().verifies_transactions
        self._questions: dict[TopicPartition, _Question] = {}
        self._answers: dict[TopicPartition, ErrorCode] = {}

    def ask(self, partitions: Sequence[TopicPartition], done: Callable[[], None]) -> None:
        """`done`, now or later, when everything is known that the log does not tell."""
        for name in partitions:
            self._begin(name)
        if not self._questions:
            done()
            return

        def take(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            self._take(codes)
            done()

        self._services.get_transaction_verifier().verify(
            self._transactional_id,
            self._producer_id,
            self._producer_epoch,
            list(self._questions),
            adds=self._adds,
            done=take,
        )

    def _begin(self, name: TopicPartition) -> None:
        partition = self._services.replicas.find(name)
        leadership = None if partition is None else partition.leadership
        if partition is None or leadership is None or not self._is_needed:
            return
        producers = partition.log.producers
        who = self._producer_id, self._producer_epoch
        if not producers.has_transaction(*who) and not producers.is_fenced(*who):
            verification = leadership.verifications.begin(*who)
            self._questions[name] = _Question(leadership, verification)

    def _take(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        for name, (leadership, verification) in self._questions.items():
            counts = leadership.verifications.end(verification)
            code = codes.get(name, ErrorCode.NONE)
            is_over = code is ErrorCode.NONE and not counts
            self._answers[name] = ErrorCode.TRANSACTION_ABORTABLE if is_over else code

    def find_refusal(self, name: TopicPartition) -> ErrorCode:
        """NONE: the append may be tried. Where this broker does not lead, it says so itself."""
        partition = self._services.replicas.find(name)
        if partition is None or partition.leadership is None or not self._is_needed:
            return ErrorCode.NONE
        producers = partition.log.producers
        # The epoch before the state: a fenced producer is to learn that it is (KAFKA-20785).
        if producers.is_fenced(self._producer_id, self._producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        question = self._questions.get(name)
        if question is not None and question.leadership is partition.leadership:
            # Also if a transaction is open by now: it may be the next one.
            return self._answers[name]
        if producers.has_transaction(self._producer_id, self._producer_epoch):
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # changed since: to be sent, and asked, again
