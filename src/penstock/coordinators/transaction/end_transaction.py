"""How transactions end: by their owner, by the coordinator, and when every partition knows. Pure.

An end is decided with the record of PrepareX, and over with the one of CompleteX; between them the
markers are written. Of a transaction without partitions the second says it all.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import NO_EPOCH, EndTxnReply, ProducerIdAndEpoch
from penstock.coordinators.transaction.result import (
    LAST_EPOCH,
    MAX_EPOCH,
    NEEDS_PRODUCER_ID,
    TransactionResult,
    find_id_before,
    find_stranger,
    is_exhausted,
    with_owner,
)
from penstock.coordinators.transaction.transaction_version import bumps_epoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID

# -- by its owner --------------------------------------------------------------------------


def end(
    known: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    *,
    commit: bool,
    version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionResult[EndTxnReply]:
    """EndTxn. `version` is the client's: since KIP-890 it gets an epoch of its own for what comes
    next, so that a request that is late meets another one and is known for what it is."""
    transaction = known.get(transactional_id)
    if transaction is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if bumps_epoch(version) and _is_repeated(transaction, claimed):
        return _answer_again(
            transactional_id, transaction, commit=commit, new_producer_id=new_producer_id
        )
    stranger = find_stranger(transaction, claimed)
    if stranger is not ErrorCode.NONE:
        return _refuse(stranger)
    if not _may_end(transaction.state, commit=commit, version=version):
        return _answer_in_state(transaction, commit=commit, version=version)
    if not bumps_epoch(version):
        after = transaction.owner
    elif not is_exhausted(transaction.owner.epoch):
        after = ProducerIdAndEpoch(transaction.owner.id, transaction.owner.epoch + 1)
    elif new_producer_id is None:
        return TransactionResult(answer=NEEDS_PRODUCER_ID)
    else:
        after = ProducerIdAndEpoch(new_producer_id, 0)
    decided = _prepare(transaction, after, commit=commit, version=version, now_ms=now_ms)
    return TransactionResult(
        answer=EndTxnReply(ErrorCode.NONE, *after),
        records=(TransactionRecord(transactional_id, decided),),
    )


def _refuse(code: ErrorCode) -> TransactionResult[EndTxnReply]:
    return TransactionResult(answer=EndTxnReply(code))


def _is_repeated(transaction: Transaction, claimed: ProducerIdAndEpoch) -> bool:
    """Whether the claimed one is the owner as it was before its last end: its answer was lost."""
    owner, state = transaction.owner, transaction.state
    if not (state.is_prepared or state.is_complete):
        return False
    if claimed.id == owner.id:
        return claimed.epoch + 1 == owner.epoch
    before = find_id_before(transaction)
    return before is not None and owner.epoch == 0 and claimed == (before, LAST_EPOCH)


def _answer_again(
    transactional_id: str,
    transaction: Transaction,
    *,
    commit: bool,
    new_producer_id: int | None,
) -> TransactionResult[EndTxnReply]:
    state, owner = transaction.state, transaction.owner
    if commit != state.commits:
        # The coordinator has aborted it: out of time, or for another instance.
        return _refuse(ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE)
    if state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if owner.epoch != MAX_EPOCH:
        return TransactionResult(answer=EndTxnReply(ErrorCode.NONE, *owner))
    if new_producer_id is None:  # the coordinator's abort took the last epoch there is
        return TransactionResult(answer=NEEDS_PRODUCER_ID)
    other = with_owner(
        transaction, ProducerIdAndEpoch(new_producer_id, 0), last_producer_epoch=LAST_EPOCH
    )
    return TransactionResult(
        answer=EndTxnReply(ErrorCode.NONE, new_producer_id, 0),
        records=(TransactionRecord(transactional_id, other),),
    )


def _may_end(state: State, *, commit: bool, version: int) -> bool:
    """Since KIP-890 a producer may abort what the coordinator has not heard of yet."""
    if state is State.ONGOING:
        return True
    return bumps_epoch(version) and not commit and not state.is_prepared


def _answer_in_state(
    transaction: Transaction, *, commit: bool, version: int
) -> TransactionResult[EndTxnReply]:
    """To the owner, where nothing is open. Of old, it may be repeating itself."""
    state = transaction.state
    is_same = state is not State.EMPTY and commit == state.commits
    if state.is_prepared and (is_same or bumps_epoch(version)):
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if is_same and not bumps_epoch(version):
        return TransactionResult(answer=EndTxnReply(ErrorCode.NONE, *transaction.owner))
    return _refuse(ErrorCode.INVALID_TXN_STATE)


# -- by the coordinator --------------------------------------------------------------------


def abort(transaction: Transaction, *, now_ms: int, may_come_back: bool) -> Transaction:
    """Whoever has it open is fenced, by one epoch and no more (KAFKA-19367). `may_come_back`: it
    has only been too slow, and may ask for its next epoch (KIP-588)."""
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
    """Decided, for `after` to go on. The epoch of its markers fences all that came before."""
    owner, state = transaction.owner, transaction.state
    if owner.id != transaction.producer_id:
        marker_epoch = _next_epoch(transaction.producer_epoch)
    elif after.id == owner.id:
        marker_epoch = after.epoch
    else:
        marker_epoch = _next_epoch(owner.epoch)
    goes_on = after == (transaction.producer_id, marker_epoch)
    is_ongoing = state is State.ONGOING
    decided = replace(
        transaction,
        producer_epoch=marker_epoch,
        next_producer_id=NO_PRODUCER_ID if goes_on else after.id,
        next_producer_epoch=NO_EPOCH if goes_on else after.epoch,
        last_producer_epoch=owner.epoch if after != owner else transaction.last_producer_epoch,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        client_version=version,
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
    )
    return decided if decided.partitions else complete(decided, now_ms=now_ms)


def complete(transaction: Transaction, *, now_ms: int, is_outlived: bool = False) -> Transaction:
    """Every partition has its marker: the next one may begin. `is_outlived`: partitions have seen
    later epochs of this producer id, which would be given away again. Then it has had its last."""
    assert transaction.state.is_prepared
    commits, owner = transaction.state.commits, transaction.owner
    if is_outlived and owner.id == transaction.producer_id:
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
