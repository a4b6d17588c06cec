"""The transaction marker that coordinators send and partition leaders append."""

from typing import NamedTuple

FIRST_WITH_EPOCH_OF_ITS_OWN = 2  # transactions v2: a marker's epoch is above its data's


class TransactionMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0

    @property
    def last_ended_epoch(self) -> int:
        """The newest producer epoch whose transaction this marker may end; never that of the next
        one."""
        has_own = self.transaction_version >= FIRST_WITH_EPOCH_OF_ITS_OWN
        return self.producer_epoch - 1 if has_own else self.producer_epoch
