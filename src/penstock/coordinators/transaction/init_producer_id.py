"""A producer says that it is there, or there again: it gets an id and an epoch. Pure.

Whoever had the transactional id before is fenced by the new epoch. What it has left open is aborted
first, or kept for the new one to end (KIP-939).
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.end_transaction import abort
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
from penstock.coordinators.transaction.result import (
    LAST_EPOCH,
    MAX_EPOCH,
    NEEDS_PRODUCER_ID,
    TransactionResult,
    find_id_before,
    is_exhausted,
    with_owner,
)
from penstock.coordinators.transaction.transaction_version import CLASSIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID


def refuse(request: InitProducerId, config: TransactionConfig) -> ErrorCode:
    """What is wrong with the request whatever the state is; NONE: nothing."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.keep_prepared and not request.two_phase:
        return ErrorCode.INVALID_REQUEST
    if request.two_phase and not config.two_phase_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not request.two_phase and not 1 <= request.timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_producer(
    known: Mapping[str, Transaction],
    request: InitProducerId,
    *,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionResult[InitProducerIdReply]:
    transaction = known.get(request.transactional_id)
    if transaction is None:
        return _begin(request, new_producer_id, now_ms)
    claimed = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if claimed != NO_PRODUCER and not _may_claim(transaction, claimed):
        return _refuse(ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is not State.ONGOING:
        return _go_on(request, transaction, claimed, new_producer_id, now_ms)
    if request.keep_prepared:
        return _keep(request, transaction, new_producer_id, now_ms)
    aborted = abort(transaction, now_ms=now_ms, may_come_back=False)
    return TransactionResult(
        answer=InitProducerIdReply(code=ErrorCode.CONCURRENT_TRANSACTIONS),  # to be asked again
        records=(TransactionRecord(request.transactional_id, aborted),),
    )


def _refuse(code: ErrorCode) -> TransactionResult[InitProducerIdReply]:
    return TransactionResult(answer=InitProducerIdReply(code=code))


def _may_claim(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    """The owner; or the owner as it was before its last request, whose answer was lost: unless it
    must have come, since the transaction of after is open."""
    owner = transaction.owner
    if claimed == owner:
        return True
    if transaction.state is State.ONGOING:
        return False
    return _is_before(transaction, claimed) and claimed.epoch == transaction.last_producer_epoch


def _is_before(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    if claimed.id == transaction.owner.id:
        return True
    return claimed.id == find_id_before(transaction) and is_exhausted(claimed.epoch)


def _begin(
    request: InitProducerId, new_producer_id: int | None, now_ms: int
) -> TransactionResult[InitProducerIdReply]:
    if new_producer_id is None:
        return TransactionResult(answer=NEEDS_PRODUCER_ID)
    begun = Transaction(
        producer_id=new_producer_id,
        producer_epoch=0,
        timeout_ms=_timeout_ms(request),
        updated_ms=now_ms,
    )
    return _write(request, begun)


def _go_on(
    request: InitProducerId,
    transaction: Transaction,
    claimed: ProducerIdAndEpoch,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionResult[InitProducerIdReply]:
    """Nothing is open: the next epoch, or the first of another id."""
    owner = transaction.owner
    is_repeated = claimed not in (NO_PRODUCER, owner)
    if is_repeated and owner.epoch != MAX_EPOCH:
        after, last_epoch = owner, transaction.last_producer_epoch
    elif not is_exhausted(owner.epoch):
        after, last_epoch = ProducerIdAndEpoch(owner.id, owner.epoch + 1), claimed.epoch
    elif new_producer_id is None:
        return TransactionResult(answer=NEEDS_PRODUCER_ID)
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
) -> TransactionResult[InitProducerIdReply]:
    """The transaction stays as it is, with its own id and epoch; only its owner changes."""
    owner = transaction.owner
    if not is_exhausted(owner.epoch):
        after = ProducerIdAndEpoch(owner.id, owner.epoch + 1)
    elif new_producer_id is None:
        return TransactionResult(answer=NEEDS_PRODUCER_ID)
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
) -> TransactionResult[InitProducerIdReply]:
    assert transaction.owner.epoch <= LAST_EPOCH
    return TransactionResult(
        answer=InitProducerIdReply(
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
