"""Producer ids and epochs of a transactional id: owner, fenced producers, next epoch. Pure."""

from dataclasses import replace
from typing import Any

from penstock.coordinators.transaction.records import Transaction
from penstock.coordinators.transaction.requests import NO_EPOCH, ProducerIdAndEpoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID

MAX_EPOCH = 2**15 - 1  # no producer gets it, so that one epoch is left to fence with
LAST_EPOCH = MAX_EPOCH - 1  # the last that a producer may have; then it gets another id


class NeedsProducerId:
    """Takes the place of a reply: run the command again with a new producer id."""


NEEDS_PRODUCER_ID = NeedsProducerId()


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH


def check_producer_epoch(transaction: Transaction, claimed: ProducerIdAndEpoch) -> ErrorCode:
    """NONE if the claimed producer owns the transactional id. Checked before any state, so that a
    fenced producer always learns that it is fenced (KAFKA-20785)."""
    owner = transaction.owner
    if claimed.id != owner.id:
        was_owner = claimed.id == transaction.producer_id
        return ErrorCode.PRODUCER_FENCED if was_owner else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed.epoch != owner.epoch or claimed.epoch == MAX_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def find_previous_id(transaction: Transaction) -> int | None:
    """The producer id that the owner had before its current one; None: it has had no other."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return transaction.producer_id
    has_changed = transaction.previous_producer_id != NO_PRODUCER_ID
    return transaction.previous_producer_id if has_changed else None


def with_owner(transaction: Transaction, owner: ProducerIdAndEpoch, **changes: Any) -> Transaction:
    """Owned by this producer from now on, with nothing open."""
    is_other_id = owner.id != transaction.producer_id
    return replace(
        transaction,
        producer_id=owner.id,
        producer_epoch=owner.epoch,
        previous_producer_id=(
            transaction.producer_id if is_other_id else transaction.previous_producer_id
        ),
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        **changes,
    )
