"""InitProducerId: assigns a new or restarted producer its id and epoch. Pure.

The new epoch fences the previous holder of the transactional id. A transaction that it left open is
aborted first, or kept for the new producer to end (KIP-939).
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.end_transaction import abort
from penstock.coordinators.transaction.producer_epochs import (
    LAST_EPOCH,
    MAX_EPOCH,
    NEEDS_PRODUCER_ID,
    NeedsProducerId,
    find_previous_id,
    is_exhausted,
    with_owner,
)
from penstock.coordinators.transaction.records import (
    NO_TIMEOUT_MS,
    State,
    Transaction,
    TransactionRecord,
)
from penstock.coordinators.transaction.requests import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIME,
    InitProducerId,
    InitProducerIdReply,
    ProducerIdAndEpoch,
)
from penstock.coordinators.transaction.transaction_notes import note_fence
from penstock.coordinators.transaction.transaction_version import CLASSIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID

InitResult = CoordinatorResult[InitProducerIdReply | NeedsProducerId, TransactionRecord]


def check_init(request: InitProducerId, config: TransactionConfig) -> ErrorCode:
    """The error of a request that is invalid regardless of any state."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.keep_prepared and not request.two_phase:
        return ErrorCode.INVALID_REQUEST
    if request.two_phase and not config.two_phase_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not request.two_phase and not 1 <= request.timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_producer_id(
    transactions: Mapping[str, Transaction],
    request: InitProducerId,
    *,
    new_producer_id: int | None,
    now_ms: int,
) -> InitResult:
    transaction = transactions.get(request.transactional_id)
    if transaction is None:
        return _begin(request, new_producer_id, now_ms)
    claimed = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if claimed != NO_PRODUCER and not _may_claim(transaction, claimed):
        return CoordinatorResult(
            reply=InitProducerIdReply(code=ErrorCode.PRODUCER_FENCED),
            notes=(note_fence(request.transactional_id, transaction, "a newer producer has it"),),
        )
    if transaction.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is not State.ONGOING:
        return _bump_epoch(request, transaction, claimed, new_producer_id, now_ms)
    if request.keep_prepared:
        return _keep(request, transaction, new_producer_id, now_ms)
    aborted = abort(transaction, now_ms=now_ms, may_come_back=False)
    return CoordinatorResult(
        reply=InitProducerIdReply(code=ErrorCode.CONCURRENT_TRANSACTIONS),  # the client retries
        records=(TransactionRecord(request.transactional_id, aborted),),
        notes=(
            note_fence(
                request.transactional_id, transaction, "its transaction is aborted for another one"
            ),
        ),
    )


def _refuse(code: ErrorCode) -> InitResult:
    return CoordinatorResult(reply=InitProducerIdReply(code=code))


def _may_claim(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    """Whether this is the owner, or the owner before its last request, whose reply may have been
    lost. Once the next transaction is open, that reply must have arrived."""
    owner = transaction.owner
    if claimed == owner:
        return True
    if transaction.state is State.ONGOING:
        return False
    return _is_previous(transaction, claimed) and claimed.epoch == transaction.last_producer_epoch


def _is_previous(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    if claimed.id == transaction.owner.id:
        return True
    return claimed.id == find_previous_id(transaction) and is_exhausted(claimed.epoch)


def _begin(request: InitProducerId, new_producer_id: int | None, now_ms: int) -> InitResult:
    if new_producer_id is None:
        return CoordinatorResult(reply=NEEDS_PRODUCER_ID)
    begun = Transaction(
        producer_id=new_producer_id,
        producer_epoch=0,
        timeout_ms=_timeout_ms(request),
        updated_ms=now_ms,
    )
    return _write(request, begun)


def _bump_epoch(
    request: InitProducerId,
    transaction: Transaction,
    claimed: ProducerIdAndEpoch,
    new_producer_id: int | None,
    now_ms: int,
) -> InitResult:
    """Assign the next epoch, or the first one of another id, while no transaction is open."""
    owner = transaction.owner
    is_repeated = claimed not in (NO_PRODUCER, owner)
    if is_repeated and owner.epoch != MAX_EPOCH:
        after, last_epoch = owner, transaction.last_producer_epoch
    elif not is_exhausted(owner.epoch):
        after, last_epoch = ProducerIdAndEpoch(owner.id, owner.epoch + 1), claimed.epoch
    elif new_producer_id is None:
        return CoordinatorResult(reply=NEEDS_PRODUCER_ID)
    else:
        after, last_epoch = ProducerIdAndEpoch(new_producer_id, 0), claimed.epoch
    ready = with_owner(
        transaction,
        after,
        last_producer_epoch=last_epoch,
        timeout_ms=_timeout_ms(request),
        state=State.EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIME,
        updated_ms=now_ms,
        client_version=CLASSIC,
    )
    return _write(request, ready)


def _keep(
    request: InitProducerId, transaction: Transaction, new_producer_id: int | None, now_ms: int
) -> InitResult:
    """The transaction keeps its producer id and epoch; only its owner changes."""
    owner = transaction.owner
    if not is_exhausted(owner.epoch):
        after = ProducerIdAndEpoch(owner.id, owner.epoch + 1)
    elif new_producer_id is None:
        return CoordinatorResult(reply=NEEDS_PRODUCER_ID)
    else:
        after = ProducerIdAndEpoch(new_producer_id, 0)
    kept = replace(
        transaction,
        next_producer_id=after.id,
        next_producer_epoch=after.epoch,
        last_producer_epoch=NO_EPOCH,
        timeout_ms=NO_TIMEOUT_MS,
        updated_ms=now_ms,
    )
    return _write(request, kept, ongoing=ProducerIdAndEpoch(kept.producer_id, kept.producer_epoch))


def _write(
    request: InitProducerId, transaction: Transaction, *, ongoing: ProducerIdAndEpoch = NO_PRODUCER
) -> InitResult:
    assert transaction.owner.epoch <= LAST_EPOCH
    return CoordinatorResult(
        reply=InitProducerIdReply(
            code=ErrorCode.NONE,
            producer_id=transaction.owner.id,
            producer_epoch=transaction.owner.epoch,
            ongoing_producer_id=ongoing.id,
            ongoing_producer_epoch=ongoing.epoch,
        ),
        records=(TransactionRecord(request.transactional_id, transaction),),
    )


def _timeout_ms(request: InitProducerId) -> int:
    return NO_TIMEOUT_MS if request.two_phase else request.timeout_ms
