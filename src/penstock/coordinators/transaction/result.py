"""What a command to a transactional id comes to: records to write, and an answer.

Deciders return it and touch nothing; the coordinator carries it out. What has to be told to the
partitions follows from the records. Invariant: state changes only by replaying records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from penstock.coordinators.transaction.records import Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import NO_EPOCH, ProducerIdAndEpoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID

Answer = TypeVar("Answer")

MAX_EPOCH = 2**15 - 1  # nobody's: there is always one more to fence with
LAST_EPOCH = MAX_EPOCH - 1  # that a producer may have; then comes another id


class NeedsProducerId:
    """In the place of an answer: to be asked again, with an id that nobody has had."""


NEEDS_PRODUCER_ID = NeedsProducerId()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult(Generic[Answer]):
    """Records are appended as one write and replayed at once; the answer leaves when they, and all
    before them, are committed. If they cannot be, it is replaced by the error."""

    answer: Answer | NeedsProducerId
    records: Sequence[TransactionRecord] = ()


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH


def find_stranger(known: Transaction, claimed: ProducerIdAndEpoch) -> ErrorCode:
    """NONE where the claimed producer owns the transactional id. The epoch is judged before any
    state is: a fenced producer is to learn that it is (KAFKA-20785)."""
    owner = known.owner
    if claimed.id != owner.id:
        was_owner = claimed.id == known.producer_id
        return ErrorCode.PRODUCER_FENCED if was_owner else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed.epoch != owner.epoch or claimed.epoch == MAX_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def find_id_before(known: Transaction) -> int | None:
    """The id that the owner had before the one it has now; None: it has had no other."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return known.producer_id
    has_changed = known.previous_producer_id != NO_PRODUCER_ID
    return known.previous_producer_id if has_changed else None


def with_owner(known: Transaction, owner: ProducerIdAndEpoch, **changes: Any) -> Transaction:
    """Belonging to this producer from now on, with nothing open."""
    is_other_id = owner.id != known.producer_id
    return replace(
        known,
        producer_id=owner.id,
        producer_epoch=owner.epoch,
        previous_producer_id=known.producer_id if is_other_id else known.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        **changes,
    )
