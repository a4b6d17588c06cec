"""EndTxn in every state by every kind of producer, one row each.

Clients act on the codes: a wrong one stops a producer that could continue, or lets a fenced one
continue (KAFKA-20785, KAFKA-19690).
"""

import pytest

from penstock.coordinators.transaction.end_transaction import end_transaction
from penstock.coordinators.transaction.producer_epochs import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import EndTxnReply, ProducerIdAndEpoch
from penstock.coordinators.transaction.transaction_version import BUMPING, CLASSIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
STATE = ErrorCode.INVALID_TXN_STATE
AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS

NOW_MS = 2_000
T0 = TopicPartition("orders", 0)
OWNER = ProducerIdAndEpoch(7, 4)
BEFORE = ProducerIdAndEpoch(7, 3)  # the owner's last epoch
COMMIT, ABORT = True, False


def in_state(state: State, **more: object) -> Transaction:
    has_partitions = state is State.ONGOING or state.is_prepared
    fields: dict[str, object] = {
        "producer_id": OWNER.id,
        "producer_epoch": OWNER.epoch,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": frozenset({T0} if has_partitions else ()),
        "updated_ms": 1_000,
        "started_ms": 500,
        **more,
    }
    return Transaction(**fields)  # type: ignore[arg-type]


def ask(
    transaction: Transaction | None, who: ProducerIdAndEpoch, *, commit: bool, version: int
) -> EndTxnReply:
    reply = end_transaction(
        {} if transaction is None else {"t": transaction},
        "t",
        who,
        commit=commit,
        version=version,
        new_producer_id=99,
        now_ms=NOW_MS,
    ).reply
    assert isinstance(reply, EndTxnReply)
    return reply


# state, commit or abort -> the code before KIP-890, and since then
OF_THE_OWNER = [
    (State.EMPTY, COMMIT, STATE, STATE),
    (State.EMPTY, ABORT, STATE, OK),
    (State.ONGOING, COMMIT, OK, OK),
    (State.ONGOING, ABORT, OK, OK),
    (State.PREPARE_COMMIT, COMMIT, AGAIN, AGAIN),
    (State.PREPARE_COMMIT, ABORT, STATE, AGAIN),
    (State.PREPARE_ABORT, COMMIT, STATE, AGAIN),
    (State.PREPARE_ABORT, ABORT, AGAIN, AGAIN),
    (State.COMPLETE_COMMIT, COMMIT, OK, STATE),
    (State.COMPLETE_COMMIT, ABORT, STATE, OK),
    (State.COMPLETE_ABORT, COMMIT, STATE, STATE),
    (State.COMPLETE_ABORT, ABORT, OK, OK),
]


@pytest.mark.parametrize(("state", "commit", "classic", "bumping"), OF_THE_OWNER)
def test_end_txn_by_the_owner(
    state: State, commit: bool, classic: ErrorCode, bumping: ErrorCode
) -> None:
    transaction = in_state(state)
    assert ask(transaction, OWNER, commit=commit, version=CLASSIC).code is classic
    assert ask(transaction, OWNER, commit=commit, version=BUMPING).code is bumping


# The previous epoch: since KIP-890 the owner repeats its request; before, it is another producer.
OF_THE_EPOCH_BEFORE = [
    (State.EMPTY, COMMIT, FENCED),
    (State.EMPTY, ABORT, FENCED),
    (State.ONGOING, COMMIT, FENCED),  # late: the next transaction is open
    (State.ONGOING, ABORT, FENCED),
    (State.PREPARE_COMMIT, COMMIT, AGAIN),
    (State.PREPARE_COMMIT, ABORT, STATE),
    (State.PREPARE_ABORT, COMMIT, FENCED),  # the coordinator has aborted it
    (State.PREPARE_ABORT, ABORT, AGAIN),
    (State.COMPLETE_COMMIT, COMMIT, OK),
    (State.COMPLETE_COMMIT, ABORT, STATE),
    (State.COMPLETE_ABORT, COMMIT, FENCED),
    (State.COMPLETE_ABORT, ABORT, OK),
]


@pytest.mark.parametrize(("state", "commit", "bumping"), OF_THE_EPOCH_BEFORE)
def test_end_txn_with_the_previous_epoch(state: State, commit: bool, bumping: ErrorCode) -> None:
    transaction = in_state(state)
    assert ask(transaction, BEFORE, commit=commit, version=CLASSIC).code is FENCED
    assert ask(transaction, BEFORE, commit=commit, version=BUMPING).code is bumping


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
@pytest.mark.parametrize(
    ("who", "code"),
    [
        (ProducerIdAndEpoch(7, 2), FENCED),  # long fenced
        (ProducerIdAndEpoch(7, 0), FENCED),
        (ProducerIdAndEpoch(7, -1), FENCED),
        (ProducerIdAndEpoch(7, 5), FENCED),  # never allocated
        (ProducerIdAndEpoch(7, MAX_EPOCH), FENCED),
        (ProducerIdAndEpoch(8, 4), WRONG_ID),
        (ProducerIdAndEpoch(-1, -1), WRONG_ID),
        (ProducerIdAndEpoch(0, 0), WRONG_ID),
        (ProducerIdAndEpoch(2**63 - 1, 4), WRONG_ID),
    ],
)
def test_the_producer_epoch_is_checked_in_every_state(
    state: State, commit: bool, version: int, who: ProducerIdAndEpoch, code: ErrorCode
) -> None:
    assert ask(in_state(state), who, commit=commit, version=version) == EndTxnReply(code)


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_an_unknown_transactional_id_gets_invalid_producer_id_mapping(version: int) -> None:
    assert ask(None, OWNER, commit=COMMIT, version=version).code is WRONG_ID


def test_only_transactions_v2_bump_the_epoch() -> None:
    transaction = in_state(State.ONGOING)
    assert ask(transaction, OWNER, commit=COMMIT, version=CLASSIC) == EndTxnReply(OK, *OWNER)
    assert ask(transaction, OWNER, commit=COMMIT, version=BUMPING) == EndTxnReply(OK, 7, 5)


def test_a_repeated_end_gets_the_same_response() -> None:
    assert ask(
        in_state(State.COMPLETE_COMMIT), BEFORE, commit=COMMIT, version=BUMPING
    ) == EndTxnReply(OK, *OWNER)


@pytest.mark.parametrize("epoch", [0, 1, LAST_EPOCH - 1])
def test_the_next_transaction_uses_the_next_epoch(epoch: int) -> None:
    transaction = in_state(State.ONGOING, producer_epoch=epoch)
    ended = ask(transaction, ProducerIdAndEpoch(7, epoch), commit=COMMIT, version=BUMPING)
    assert ended == EndTxnReply(OK, 7, epoch + 1)


def test_after_the_last_epoch_the_producer_gets_another_id() -> None:
    transaction = in_state(State.ONGOING, producer_epoch=LAST_EPOCH)
    result = end_transaction(
        {"t": transaction},
        "t",
        ProducerIdAndEpoch(7, LAST_EPOCH),
        commit=COMMIT,
        version=BUMPING,
        new_producer_id=99,
        now_ms=NOW_MS,
    )
    assert result.reply == EndTxnReply(OK, 99, 0)
    (record,) = result.records
    assert record.value is not None
    # Its markers still have the old id, with the epoch reserved for fencing.
    assert (record.value.producer_id, record.value.producer_epoch) == (7, MAX_EPOCH)
    assert record.value.owner == ProducerIdAndEpoch(99, 0)


def test_before_v2_a_producer_keeps_even_the_last_epoch() -> None:
    transaction = in_state(State.ONGOING, producer_epoch=LAST_EPOCH)
    last = ProducerIdAndEpoch(7, LAST_EPOCH)
    assert ask(transaction, last, commit=COMMIT, version=CLASSIC) == EndTxnReply(OK, *last)


OVERFLOWN = {"next_producer_id": 99, "next_producer_epoch": 0, "producer_epoch": MAX_EPOCH}


@pytest.mark.parametrize(
    ("who", "commit", "code"),
    [
        (ProducerIdAndEpoch(7, LAST_EPOCH), COMMIT, AGAIN),  # a repeated request
        (ProducerIdAndEpoch(7, LAST_EPOCH - 1), COMMIT, FENCED),
        (ProducerIdAndEpoch(7, MAX_EPOCH), COMMIT, FENCED),
        (
            ProducerIdAndEpoch(99, 0),
            COMMIT,
            AGAIN,
        ),  # the response has arrived, and the request is early
        (ProducerIdAndEpoch(99, 1), COMMIT, FENCED),
    ],
)
def test_end_txn_while_the_producer_id_changes(
    who: ProducerIdAndEpoch, commit: bool, code: ErrorCode
) -> None:
    transaction = in_state(State.PREPARE_COMMIT, **OVERFLOWN)
    assert ask(transaction, who, commit=commit, version=BUMPING).code is code


def test_a_repeated_end_after_a_change_of_id_gets_the_new_id() -> None:
    transaction = in_state(
        State.COMPLETE_COMMIT, producer_id=99, producer_epoch=0, previous_producer_id=7
    )
    again = ProducerIdAndEpoch(7, LAST_EPOCH)
    assert ask(transaction, again, commit=COMMIT, version=BUMPING) == EndTxnReply(OK, 99, 0)
    assert ask(transaction, again, commit=COMMIT, version=CLASSIC).code is WRONG_ID
    assert (
        ask(transaction, ProducerIdAndEpoch(7, LAST_EPOCH - 1), commit=COMMIT, version=BUMPING).code
        is WRONG_ID
    )


def test_without_a_previous_id_no_producer_matches_it() -> None:
    transaction = in_state(State.COMPLETE_COMMIT, producer_epoch=0)
    nobody = ProducerIdAndEpoch(-1, LAST_EPOCH)
    assert ask(transaction, nobody, commit=COMMIT, version=BUMPING).code is WRONG_ID


def test_no_producer_gets_the_max_epoch() -> None:
    """Its transaction timed out and was aborted; its own abort arrives late."""
    transaction = in_state(State.COMPLETE_ABORT, producer_epoch=MAX_EPOCH)
    assert ask(
        transaction, ProducerIdAndEpoch(7, LAST_EPOCH), commit=ABORT, version=BUMPING
    ) == EndTxnReply(OK, 99, 0)
