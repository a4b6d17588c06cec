"""The end of a transaction: by its owner, by the coordinator, and its completion. Pure.

The record of PrepareX decides the end and the record of CompleteX finishes it; the markers are
written in between. A transaction without partitions goes to CompleteX at once.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.coordinators.transaction.producer_epochs import (
    LAST_EPOCH,
    MAX_EPOCH,
    NEEDS_PRODUCER_ID,
    NeedsProducerId,
    check_producer_epoch,
    find_previous_id,
    is_exhausted,
    with_owner,
)
from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import NO_EPOCH, EndTxnReply, ProducerIdAndEpoch
from penstock.coordinators.transaction.transaction_notes import note_fence
from penstock.coordinators.transaction.transaction_version import bumps_epoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID

EndResult = CoordinatorResult[EndTxnReply | NeedsProducerId, TransactionRecord]

# -- by its owner --------------------------------------------------------------------------


def end_transaction(
    transactions: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    *,
    commit: bool,
    version: int,
    new_producer_id: int | None,
    now_ms: int,
    is_from_abandoned_connection: bool = False,
) -> EndResult:
    """EndTxn. `version` is the client's: since KIP-890 every transaction has its own epoch, so that
    a late request carries an old one.

    `is_from_abandoned_connection`: an older client has given up on this request and continued over
    another connection, so with a transaction open again this is a late copy: its epoch cannot tell
    (KAFKA-17754). A fenced producer must still learn that it is fenced, so that is checked first.
    """
    transaction = transactions.get(transactional_id)
    if transaction is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if bumps_epoch(version) and _is_repeated(transaction, claimed):
        return _repeat_reply(
            transactional_id, transaction, commit=commit, new_producer_id=new_producer_id
        )
    fenced = check_producer_epoch(transaction, claimed)
    if fenced is not ErrorCode.NONE:
        return CoordinatorResult(
            reply=EndTxnReply(code=fenced),
            notes=(note_fence(transactional_id, transaction, "a newer producer has it"),),
        )
    is_ongoing = transaction.state is State.ONGOING
    if is_from_abandoned_connection and is_ongoing and not bumps_epoch(version):
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _may_end(transaction.state, commit=commit, version=version):
        return _reply_in_state(transaction, commit=commit, version=version)
    if not bumps_epoch(version):
        after = transaction.owner
    elif not is_exhausted(transaction.owner.epoch):
        after = ProducerIdAndEpoch(transaction.owner.id, transaction.owner.epoch + 1)
    elif new_producer_id is None:
        return CoordinatorResult(reply=NEEDS_PRODUCER_ID)
    else:
        after = ProducerIdAndEpoch(new_producer_id, 0)
    decided = _prepare(transaction, after, commit=commit, version=version, now_ms=now_ms)
    return CoordinatorResult(
        reply=EndTxnReply(ErrorCode.NONE, *after),
        records=(TransactionRecord(transactional_id, decided),),
    )


def _refuse(code: ErrorCode) -> EndResult:
    return CoordinatorResult(reply=EndTxnReply(code))


def _is_repeated(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    """Whether the claimed producer is the owner before its last EndTxn, whose reply was lost."""
    owner, state = transaction.owner, transaction.state
    if not (state.is_prepared or state.is_complete):
        return False
    if claimed.id == owner.id:
        return claimed.epoch + 1 == owner.epoch
    previous = find_previous_id(transaction)
    return previous is not None and owner.epoch == 0 and claimed == (previous, LAST_EPOCH)


def _repeat_reply(
    transactional_id: str,
    transaction: Transaction,
    *,
    commit: bool,
    new_producer_id: int | None,
) -> EndResult:
    state, owner = transaction.state, transaction.owner
    if commit != state.commits:
        # The coordinator aborted it: it timed out, or another instance took over.
        return _refuse(ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE)
    if state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if owner.epoch != MAX_EPOCH:
        return CoordinatorResult(reply=EndTxnReply(ErrorCode.NONE, *owner))
    if new_producer_id is None:  # the coordinator's abort used up the last epoch
        return CoordinatorResult(reply=NEEDS_PRODUCER_ID)
    other = with_owner(
        transaction, ProducerIdAndEpoch(new_producer_id, 0), last_producer_epoch=LAST_EPOCH
    )
    return CoordinatorResult(
        reply=EndTxnReply(ErrorCode.NONE, new_producer_id, 0),
        records=(TransactionRecord(transactional_id, other),),
    )


def _may_end(state: State, *, commit: bool, version: int) -> bool:
    """Since KIP-890 a producer may abort a transaction that the coordinator does not know yet."""
    if state is State.ONGOING:
        return True
    return bumps_epoch(version) and not commit and not state.is_prepared


def _reply_in_state(transaction: Transaction, *, commit: bool, version: int) -> EndResult:
    """The reply while nothing is open. Before KIP-890 the owner may be repeating its request."""
    state = transaction.state
    is_same = state is not State.EMPTY and commit == state.commits
    if state.is_prepared and (is_same or bumps_epoch(version)):
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if is_same and not bumps_epoch(version):
        return CoordinatorResult(reply=EndTxnReply(ErrorCode.NONE, *transaction.owner))
    return _refuse(ErrorCode.INVALID_TXN_STATE)


# -- by the coordinator --------------------------------------------------------------------


def abort(transaction: Transaction, *, now_ms: int, may_come_back: bool) -> Transaction:
    """Fences its producer, by exactly one epoch (KAFKA-19367). `may_come_back`: the producer was
    only too slow and may ask for its next epoch (KIP-588)."""
    assert transaction.state is State.ONGOING
    owner = transaction.owner
    decided = _prepare(
        transaction,
        ProducerIdAndEpoch(owner.id, _next_epoch(owner.epoch)),
        commit=False,
        version=transaction.client_version,
        now_ms=now_ms,
    )
    return replace(decided, last_producer_epoch=owner.epoch if may_come_back else NO_EPOCH)


# -- both ----------------------------------------------------------------------------------


def _prepare(
    transaction: Transaction, after: ProducerIdAndEpoch, *, commit: bool, version: int, now_ms: int
) -> Transaction:
    """Decided; `after` is the next owner. The markers' epoch fences all earlier ones."""
    owner, state = transaction.owner, transaction.state
    if owner.id != transaction.producer_id:
        marker_epoch = _next_epoch(transaction.producer_epoch)
    elif after.id == owner.id:
        marker_epoch = after.epoch
    else:
        marker_epoch = _next_epoch(owner.epoch)
    is_same_producer = after == (transaction.producer_id, marker_epoch)
    is_ongoing = state is State.ONGOING
    decided = replace(
        transaction,
        producer_epoch=marker_epoch,
        next_producer_id=NO_PRODUCER_ID if is_same_producer else after.id,
        next_producer_epoch=NO_EPOCH if is_same_producer else after.epoch,
        last_producer_epoch=owner.epoch if after != owner else transaction.last_producer_epoch,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        client_version=version,
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
    )
    return decided if decided.partitions else complete(decided, now_ms=now_ms)


def complete(
    transaction: Transaction, *, now_ms: int, newer_epoch_seen: bool = False
) -> Transaction:
    """Every partition has its marker: the next transaction may begin. `newer_epoch_seen`:
    partitions have seen later epochs of this producer id, which must not be given out again, so
    this id gets no further epoch."""
    assert transaction.state.is_prepared
    commits, owner = transaction.state.commits, transaction.owner
    if newer_epoch_seen and owner.id == transaction.producer_id:
        owner = ProducerIdAndEpoch(owner.id, MAX_EPOCH)
    return with_owner(
        transaction,
        owner,
        state=State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def _next_epoch(epoch: int) -> int:
    return min(epoch + 1, MAX_EPOCH)
