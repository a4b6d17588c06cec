"""One led partition of `__transaction_state`: its transactional ids and the delivery of markers.

`CoordinatorShard` runs the commands; when the record of a decision is committed, this shard sends
its markers and, once every partition has one, writes the completion. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.coordinators.runtime.coordinator_shard import (
    CoordinatorShard,
    ShardDependencies,
    Sweep,
)
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import build_batches
from penstock.coordinators.runtime.result import CoordinatorResult, Waiter
from penstock.coordinators.transaction import queries
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.dependencies import MarkerChannel, PartitionLookup
from penstock.coordinators.transaction.end_transaction import complete
from penstock.coordinators.transaction.loader import TransactionsLoader
from penstock.coordinators.transaction.marker_delivery import MarkerDelivery
from penstock.coordinators.transaction.pending_markers import EndKey
from penstock.coordinators.transaction.records import State, TransactionRecord, encode_record
from penstock.coordinators.transaction.requests import DescribedTransaction
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.coordinators.transaction.timeouts import abort_timed_out, expire_ids
from penstock.coordinators.transaction.transaction_notes import note_timeout
from penstock.model.errors import ErrorCode

WRITE_TIMEOUT_MS = 5_000
COMMIT_CHECK_PAUSE_MS = 100  # before it is checked again whether a decision is committed
END_BYTES = 64  # by which the record of an end may exceed the record of the open transaction

_MARKERS = "markers"  # key of the timer that checks for committed decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDependencies(ShardDependencies):
    """Shared by all shards of the coordinator."""

    channel: MarkerChannel
    partitions: PartitionLookup
    config: Callable[[], TransactionConfig]
    on_timed_out: Callable[[int], None]  # with how many transactions it aborts


class TransactionShard(CoordinatorShard[TransactionShardState, TransactionRecord]):
    def __init__(self, partition: int, dependencies: TransactionDependencies) -> None:
        self._dependencies = dependencies
        # Decided, markers not sent yet: transactional id -> offset that must be committed first.
        self._uncommitted_ends: dict[str, int] = {}
        self._delivery = MarkerDelivery(
            channel=dependencies.channel,
            partitions=dependencies.partitions,
            timers=dependencies.timers,
            logger=dependencies.logger.prefixed(self),
            coordinator_epoch=lambda: self.leader_epoch,
            on_marked=self._complete,
        )
        self._sweeps = (
            Sweep(
                "abort timed-out transactions",
                lambda: dependencies.config().abort_interval_ms,
                lambda: self.state.ongoing(),
                self._abort_timed_out,
            ),
            Sweep(
                "expire transactional ids",
                lambda: dependencies.config().expiry_interval_ms,
                lambda: list(self.state.transactions),
                self._expire_ids,
            ),
        )
        super().__init__(partition, dependencies)

    @property
    def pending_markers(self) -> int:
        """Transactions that are decided but not marked in all their partitions."""
        return len(self._uncommitted_ends) + len(self._delivery)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return queries.describe(
            self.state.transactions, transactional_id, self._delivery.newer_open
        )

    # -- writing ---------------------------------------------------------------------------

    def _build_batches(
        self, result: CoordinatorResult[Any, TransactionRecord]
    ) -> Sequence[bytearray]:
        log = self._dependencies.log
        return build_batches(
            result.records,
            encode_record,
            lambda record: f"transactional id {record.transactional_id!r}",
            now_ms=self._dependencies.wall_ms(),
            max_bytes=log.max_batch_bytes(self.partition) - _reserve(result.records),
        )

    def _replay(self, result: CoordinatorResult[Any, TransactionRecord], base_offset: int) -> int:
        end_offset = base_offset + len(result.records)
        for record in result.records:
            self.state.replay(record)
            if record.value is not None and record.value.state.is_prepared:
                self._uncommitted_ends[record.transactional_id] = end_offset
        return end_offset

    def _write_timeout_ms(self) -> int:
        return WRITE_TIMEOUT_MS

    # -- markers ---------------------------------------------------------------------------

    def _on_write_done(self, code: ErrorCode) -> None:
        if not self._uncommitted_ends:
            return
        if code is ErrorCode.NONE:
            # Not at once, so that the reply to the client that decided leaves first.
            asyncio.get_running_loop().call_soon(self._send_markers)
        elif self.is_active:
            self._timers.set(_MARKERS, COMMIT_CHECK_PAUSE_MS, self._send_markers)

    def on_leaders_changed(self) -> None:
        if self.is_active:
            self._delivery.retry_now()

    def _send_markers(self) -> None:
        """Send the markers of committed decisions; a write in progress calls this again at its
        end."""
        if not self.is_active or not self.is_led:
            return
        committed = self._dependencies.log.ends(self.partition).committed
        due = [name for name, end in self._uncommitted_ends.items() if end <= committed]
        for name in due:
            del self._uncommitted_ends[name]
        self._delivery.begin({name: self.state.transactions[name] for name in due})
        if self._uncommitted_ends and not self._replies.is_writing:
            self._timers.set(_MARKERS, COMMIT_CHECK_PAUSE_MS, self._send_markers)

    def _complete(self, key: EndKey) -> None:
        """Every partition has its marker."""
        transaction = self.state.transactions.get(key.transactional_id)
        if transaction is None or not transaction.state.is_prepared or not key.is_of(transaction):
            self._delivery.end(key)
            return

        def decide(
            _: TransactionShardState, __: Waiter, now_ms: int
        ) -> CoordinatorResult[None, TransactionRecord]:
            completed = complete(
                transaction,
                now_ms=now_ms,
                newer_epoch_seen=self._delivery.newer_epoch_seen(key),
            )
            record = TransactionRecord(key.transactional_id, completed)
            return CoordinatorResult(reply=None, records=(record,))

        if self._execute(decide) is ErrorCode.NONE:
            self._delivery.end(key)
        elif self.is_active:
            self._delivery.retry_later()

    # -- time-outs -------------------------------------------------------------------------

    def _abort_timed_out(
        self, names: list[str], now_ms: int
    ) -> CoordinatorResult[None, TransactionRecord]:
        transactions = self.state.transactions
        records = abort_timed_out(transactions, names, now_ms=now_ms)
        self._dependencies.on_timed_out(len(records))
        notes = [
            note_timeout(record.transactional_id, transactions[record.transactional_id], now_ms)
            for record in records
        ]
        return CoordinatorResult(reply=None, records=records, notes=notes)

    def _expire_ids(
        self, names: list[str], now_ms: int
    ) -> CoordinatorResult[None, TransactionRecord]:
        records = expire_ids(
            self.state.transactions,
            names,
            now_ms=now_ms,
            expiration_ms=self._dependencies.config().id_expiration_ms,
        )
        return CoordinatorResult(reply=None, records=records)

    # -- loading and ending ----------------------------------------------------------------

    def _new_state(self) -> TransactionShardState:
        return TransactionShardState()

    def _new_reader(self, report: Report) -> TransactionsLoader:
        return TransactionsLoader(report)

    def _load_entry(self, entry: TransactionRecord) -> None:
        self.state.replay(entry)

    def _chunk_bytes(self) -> int:
        return self._dependencies.config().load_buffer_bytes

    def _on_active(self) -> None:
        """Markers of a former coordinator's decisions may not have reached every partition."""
        for sweep in self._sweeps:
            self._sweep_later(sweep)
        self._delivery.begin(self.state.prepared())

    def _forget_volatile(self) -> None:
        self._uncommitted_ends.clear()
        self._delivery.forget()

    def __str__(self) -> str:
        return f"__transaction_state-{self.partition}"


def _reserve(records: Sequence[TransactionRecord]) -> int:
    """Bytes reserved for the record of its end, so that every open transaction can be ended."""
    values = (record.value for record in records)
    is_open = any(value is not None and value.state is State.ONGOING for value in values)
    return END_BYTES if is_open else 0
