"""What handlers ask about transactions: of the coordinator on this broker, or of the one that a
transaction has, wherever it is.

Every call answers a client's fault with a code; none raises for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

Verified = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class VerifiesTransactions(Protocol):
    """Asks a transaction's coordinator whether partitions belong to it (KIP-890)."""

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
        """`done` once, now or later, with a code for each of the partitions.

        `adds`: those that do not belong to it are added (transactions v2), and while the one before
        is still being ended, that is tried again for a short while. The codes are the
        coordinator's, but that a newer producer's is INVALID_PRODUCER_EPOCH, which clients expect
        of a partition. Where the coordinator is not known or not reached: COORDINATOR_NOT_AVAILABLE
        or NETWORK_EXCEPTION; the caller tells its client something that is tried again.
        """


class NobodyVerifies:
    """Of a broker without a coordinator to ask: nothing can be written in a transaction."""

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
        done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
