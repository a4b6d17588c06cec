"""Known bugs, planted one at a time: a test must detect each of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.unit.coordinators.transaction import test_end_transaction as end_txn
from tests.unit.coordinators.transaction import test_init_producer_id as inits
from tests.unit.coordinators.transaction import test_late_end_txn as late_end_txn
from tests.unit.coordinators.transaction import test_marker_delivery as marker_delivery
from tests.unit.coordinators.transaction import test_partitions as partitions
from tests.unit.coordinators.transaction import test_timeouts as timeouts
from tests.unit.coordinators.transaction import test_two_phase_commit as two_phase
from tests.unit.coordinators.transaction.harness import NEW_END, FakePartitions

from penstock.coordinators.transaction import end_transaction as ending
from penstock.coordinators.transaction import init_producer_id, records
from penstock.coordinators.transaction import partitions as partition_rules
from penstock.coordinators.transaction import timeouts as time_rules
from penstock.coordinators.transaction.connections import Connections
from penstock.coordinators.transaction.marker_delivery import MarkerDelivery
from penstock.coordinators.transaction.pending_markers import PendingMarkers
from penstock.coordinators.transaction.producer_epochs import MAX_EPOCH
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.coordinators.transaction.shard import TransactionShard
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.model.errors import ErrorCode


class Bug(NamedTuple):
    name: str
    owner: Any
    attribute: str
    planted: Any
    noticed_by: Callable[[], None]


def _send_markers_at_once(self: TransactionShard) -> None:
    due, self._uncommitted_ends = self._uncommitted_ends, {}
    self._delivery.begin({name: self.state.transactions[name] for name in due})


def _replay_and_send_markers(self: TransactionShard, batch: Any, base_offset: int) -> int:
    end_offset = _REPLAY(self, batch, base_offset)
    _send_markers_at_once(self)
    return end_offset


_REPLAY = TransactionShard._replay
_TAGGED = records._tagged


def _without_last_epoch(value: Transaction) -> list[tuple[int, bytes]]:
    return [(tag, data) for tag, data in _TAGGED(value) if tag < 10]


BUGS = [
    Bug(
        "markers are sent before the decision is committed",
        TransactionShard,
        "_replay",
        _replay_and_send_markers,
        marker_delivery.test_no_marker_is_sent_before_the_decision_is_committed,
    ),
    Bug(
        "the state is checked before the epoch (KAFKA-20785)",
        ending,
        "check_producer_epoch",
        lambda transaction, claimed: ErrorCode.NONE,
        partial(
            end_txn.test_the_producer_epoch_is_checked_in_every_state,
            State.EMPTY,
            commit=True,
            version=0,
            who=ProducerIdAndEpoch(7, 2),
            code=ErrorCode.PRODUCER_FENCED,
        ),
    ),
    Bug(
        "zombies may add partitions",
        partition_rules,
        "check_producer_epoch",
        lambda transaction, claimed: ErrorCode.NONE,
        inits.test_the_next_producer_gets_the_next_epoch_and_fences_the_previous_one,
    ),
    Bug(
        "a zombie that asks for its epoch aborts the open transaction",
        init_producer_id,
        "_may_claim",
        lambda transaction, claimed: True,
        inits.test_a_zombie_cannot_abort_its_successors_transaction,
    ),
    Bug(
        "a timed-out transaction is aborted without fencing",
        ending,
        "_next_epoch",
        lambda epoch: epoch,
        timeouts.test_a_timed_out_transaction_is_aborted_and_its_producer_fenced,
    ),
    Bug(
        "the epoch is bumped twice (KAFKA-19367)",
        ending,
        "_next_epoch",
        lambda epoch: min(epoch + 2, MAX_EPOCH),
        inits.test_an_open_transaction_is_aborted_first,
    ),
    Bug(
        "the epoch reserved for fencing is given out (KAFKA-18660)",
        ending,
        "is_exhausted",
        lambda epoch: epoch >= MAX_EPOCH,
        end_txn.test_after_the_last_epoch_the_producer_gets_another_id,
    ),
    Bug(
        "a repeated end is taken for a zombie's",
        ending,
        "_is_repeated",
        lambda transaction, claimed: False,
        end_txn.test_a_repeated_end_gets_the_same_response,
    ),
    Bug(
        "a repeated init is recognized only until the coordinator moves",
        records,
        "_tagged",
        _without_last_epoch,
        inits.test_a_repeated_init_is_recognized_by_a_new_coordinator,
    ),
    Bug(
        "results of a former coordinator's markers count (KAFKA-9777)",
        MarkerDelivery,
        "forget",
        lambda self: None,
        marker_delivery.test_results_of_a_former_coordinators_markers_are_ignored,
    ),
    Bug(
        "markers of a former coordinator's decisions are not sent",
        TransactionShardState,
        "prepared",
        lambda self: {},
        partial(
            marker_delivery.test_a_new_coordinator_sends_the_markers_of_prepared_transactions,
            commit=True,
        ),
    ),
    Bug(
        "lost epochs are given out again",
        MarkerDelivery,
        "newer_epoch_seen",
        lambda self, key: False,
        partial(
            marker_delivery.test_an_already_ended_transaction_completes_and_its_id_gets_a_new_producer_id,
            NEW_END,
        ),
    ),
    Bug(
        "a stale refusal raises the backoff of others",
        PendingMarkers,
        "only_refused_left",
        property(lambda self: not self),
        marker_delivery.test_a_stale_refusal_does_not_raise_the_backoff_of_others,
    ),
    Bug(
        "a deleted topic blocks a transaction for ever",
        MarkerDelivery,
        "_without_deleted",
        lambda self, tp, code: code,
        marker_delivery.test_a_partition_of_a_deleted_topic_needs_no_marker,
    ),
    Bug(
        "a leader with stale metadata counts as a deleted topic",
        FakePartitions,
        "has_partition",
        lambda self, tp: False,
        partial(marker_delivery.test_only_failed_markers_are_retried, marker_delivery.GONE),
    ),
    Bug(
        "a late end of an old client ends the next transaction (KAFKA-17754)",
        Connections,
        "is_abandoned",
        lambda self, transactional_id, connection: False,
        late_end_txn.test_before_v2_the_connection_identifies_a_late_end,
    ),
    Bug(
        "a two-phase transaction times out",
        Transaction,
        "is_two_phase",
        False,
        two_phase.test_a_two_phase_transaction_never_times_out_or_expires,
    ),
    Bug(
        "an id expires while its markers are pending",
        time_rules,
        "_is_idle",
        lambda transaction: True,
        timeouts.test_an_id_with_pending_markers_does_not_expire,
    ),
    Bug(
        "partitions are added to a kept transaction",
        Transaction,
        "is_kept",
        False,
        two_phase.test_nothing_is_added_to_a_kept_transaction,
    ),
    Bug(
        "a partition is verified for an ending transaction",
        partition_rules,
        "_find_refusal",
        lambda transaction, claimed: ErrorCode.NONE,
        partial(
            partitions.test_the_owner_adds_partitions_except_while_markers_are_pending,
            State.PREPARE_COMMIT,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_planted_bug_is_detected(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug.owner, bug.attribute, bug.planted)
    with pytest.raises((AssertionError, ExceptionGroup)):
        bug.noticed_by()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_test_passes_without_the_bug(bug: Bug) -> None:
    bug.noticed_by()
