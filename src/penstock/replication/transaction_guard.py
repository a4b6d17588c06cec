"""Watches a producer's transaction in a partition while a handler waits before its append.

Begin it while the transaction is known, or is being verified, to be open. Invariant: no refusal
only if no marker has ended the transaction here since, under the same leadership; otherwise a late
batch would open a transaction that nobody ends (KIP-890).
"""

from penstock.model.errors import ErrorCode
from penstock.replication.partition import Partition


class TransactionGuard:
    """Close it, whatever happens."""

    def __init__(self, partition: Partition, producer_id: int, producer_epoch: int) -> None:
        assert partition.leadership is not None, "only leaders append for producers"
        self._partition = partition
        self._leadership = partition.leadership
        self._producer = producer_id, producer_epoch
        self._verification = self._leadership.verifications.begin(*self._producer)

    def find_refusal(self) -> ErrorCode:
        """NONE: append, with nothing awaited in between."""
        if self._partition.leadership is not self._leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._partition.log.producers.is_fenced(*self._producer):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.TRANSACTION_ABORTABLE if self._verification.is_void else ErrorCode.NONE

    def close(self) -> None:
        self._leadership.verifications.end(self._verification)
