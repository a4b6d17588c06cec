"""One led partition of `__transaction_state`: its transactional ids, and the order of its commands.

A command decides on the state, its records go to the log and are replayed, its answer leaves when
they are committed; then what they have decided is told to the partitions. Owned by the event loop.
Invariant: the state is what a replay of the log gives; of the rest a reload may forget everything.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.coordinators.runtime.coordinator_shard import CoordinatorShard, Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers, Report
from penstock.coordinators.runtime.error_codes import answer_code
from penstock.coordinators.runtime.pending_replies import Failed, PendingWrite, Waiter
from penstock.coordinators.runtime.record_batches import TooLarge, build_batches
from penstock.coordinators.transaction import queries
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.connections import Connections
from penstock.coordinators.transaction.dependencies import KnownPartitions, MarkerChannel
from penstock.coordinators.transaction.end_transaction import complete
from penstock.coordinators.transaction.loader import TransactionsLoader
from penstock.coordinators.transaction.marker_delivery import MarkerDelivery
from penstock.coordinators.transaction.pending_markers import EndKey
from penstock.coordinators.transaction.records import (
    State,
    Transaction,
    TransactionRecord,
    encode_record,
)
from penstock.coordinators.transaction.requests import DescribedTransaction
from penstock.coordinators.transaction.result import NeedsProducerId, TransactionResult
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.coordinators.transaction.timeouts import abort_late, forget_unused
from penstock.model.errors import ErrorCode
from penstock.purgatory.timing_wheel import Timer

Answer = TypeVar("Answer")

# Decides; gets the wall clock's time.
Command = Callable[[Mapping[str, Transaction], int], TransactionResult[Answer]]

WRITE_TIMEOUT_MS = 5_000
NOBODY = Waiter(0)  # waits for what a timer or a marker does
IDS_A_SWEEP = 200  # looked through in one turn of the loop
COMMIT_PAUSE_MS = 100  # before it is asked again whether a decision is committed
END_BYTES = 64  # by which the record of an end may be longer than what it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDependencies:
    """What every shard of a broker shares."""

    log: CoordinatorLog
    timers: CoordinatorTimers
    channel: MarkerChannel
    known: KnownPartitions
    wall_ms: Callable[[], int]
    config: Callable[[], TransactionConfig]
    report: Report
    load_again: Callable[["TransactionShard"], None]


class TransactionShard(CoordinatorShard[TransactionShardState]):
    def __init__(self, partition: int, around: TransactionDependencies) -> None:
        self._around = around
        self._to_tell: dict[str, int] = {}  # decided -> what must be committed before it is told
        self.connections = Connections()
        self._timers: dict[str, Timer[Callable[[], None]]] = {}  # by what they are for
        self._marking = MarkerDelivery(
            channel=around.channel,
            known=around.known,
            timers=around.timers,
            report=lambda line: around.report(f"{self}: {line}"),
            coordinator_epoch=lambda: self.leader_epoch,
            on_marked=self._complete,
        )
        super().__init__(partition, around)

    @property
    def untold(self) -> int:
        """Transactions that are decided and not known to all their partitions."""
        return len(self._to_tell) + len(self._marking)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return queries.describe(self.state.known, transactional_id, self._marking.later)

    # -- commands --------------------------------------------------------------------------

    def run(self, command: Command[Answer]) -> "asyncio.Future[Answer | NeedsProducerId | Failed]":
        assert self.status is Status.ACTIVE, f"shard {self.partition} is {self.status.value}"
        waiter, future = self._answers.open()
        self._decide(command, waiter)
        return future

    def _decide(self, command: Command[Any], waiter: Waiter) -> ErrorCode:
        """NONE, or why nothing of it was written."""
        try:
            outcome = command(self.state.known, self._around.wall_ms())
            code = self._write(outcome.records) if outcome.records else ErrorCode.NONE
        except Exception:
            # What it has left half done is not to be trusted; the log is.
            self._around.report(
                f"a command to the transactions of {self} failed in a way that was not foreseen; "
                f"they are loaded anew\n{traceback.format_exc()}"
            )
            self.reload(ErrorCode.UNKNOWN_SERVER_ERROR)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if code is not ErrorCode.NONE:
            self._answers.fail(waiter, code)
        elif waiter != NOBODY:
            self._keep_order(timeout_ms=WRITE_TIMEOUT_MS)
            self._answers.answer(waiter, outcome.answer)
        return code

    # -- writing ---------------------------------------------------------------------------

    def _write(self, records: Sequence[TransactionRecord]) -> ErrorCode:
        if not self.is_led:
            return ErrorCode.NOT_COORDINATOR
        try:
            batches = build_batches(
                records,
                encode_record,
                lambda record: f"transactional id {record.transactional_id!r}",
                now_ms=self._around.wall_ms(),
                max_bytes=self._around.log.max_batch_bytes(self.partition) - _reserve(records),
            )
        except TooLarge as error:
            self._around.report(f"{self}: {error}")
            return answer_code(ErrorCode.MESSAGE_TOO_LARGE)
        return self._append(batches, partial(self._replay, records), timeout_ms=WRITE_TIMEOUT_MS)

    def _replay(self, records: Sequence[TransactionRecord], base_offset: int) -> int:
        end_offset = base_offset + len(records)
        for record in records:
            self.state.replay(record)
            if record.value is None:
                self.connections.forget(record.transactional_id)
            elif record.value.state.is_prepared:
                self._to_tell[record.transactional_id] = end_offset
        return end_offset

    def _on_written(self, write: PendingWrite, code: ErrorCode) -> None:
        super()._on_written(write, code)
        if not self._to_tell:
            return
        if code is ErrorCode.NONE:
            # Not at once: the answer to who decided it comes first.
            asyncio.get_running_loop().call_soon(self._tell)
        elif self._is_active():
            self._again("tell", COMMIT_PAUSE_MS, self._tell)

    # -- telling the partitions ------------------------------------------------------------

    def on_leaders_changed(self) -> None:
        if self._is_active():
            self._marking.hurry()

    def _tell(self) -> None:
        """What is committed of the decisions; a write that is under way comes back here."""
        if not self._is_active() or not self.is_led:
            return
        committed = self._around.log.ends(self.partition).committed
        due = [name for name, end_offset in self._to_tell.items() if end_offset <= committed]
        for name in due:
            del self._to_tell[name]
        self._marking.begin({name: self.state.known[name] for name in due})
        if self._to_tell and not self._answers.is_writing:
            self._again("tell", COMMIT_PAUSE_MS, self._tell)

    def _complete(self, key: EndKey) -> None:
        """Every partition has its marker."""
        found = self.state.known.get(key.transactional_id)
        if found is None or not found.state.is_prepared or not key.is_of(found):
            self._marking.end(key)
            return

        def decide(known: Mapping[str, Transaction], now_ms: int) -> TransactionResult[None]:
            over = complete(found, now_ms=now_ms, is_outlived=self._marking.is_outlived(key))
            return TransactionResult(
                answer=None, records=(TransactionRecord(key.transactional_id, over),)
            )

        if self._decide(decide, NOBODY) is ErrorCode.NONE:
            self._marking.end(key)
        elif self._is_active():
            self._marking.try_again_later()

    # -- time ------------------------------------------------------------------------------

    def _abort_later(self) -> None:
        delay_ms = self._around.config().abort_interval_ms
        self._again("abort", delay_ms, lambda: self._abort_late(self.state.ongoing()))

    def _abort_late(self, names: list[str]) -> None:
        """Some a turn. What cannot be written now is looked at again next time."""
        some, rest = names[:IDS_A_SWEEP], names[IDS_A_SWEEP:]
        self._decide(
            lambda known, now_ms: TransactionResult(
                answer=None, records=abort_late(known, some, now_ms=now_ms)
            ),
            NOBODY,
        )
        self._go_on("abort", rest, self._abort_late, self._abort_later)

    def _forget_later(self) -> None:
        delay_ms = self._around.config().expiry_interval_ms
        self._again("forget", delay_ms, lambda: self._forget_unused(list(self.state.known)))

    def _forget_unused(self, names: list[str]) -> None:
        some, rest = names[:IDS_A_SWEEP], names[IDS_A_SWEEP:]
        expiration_ms = self._around.config().id_expiration_ms
        self._decide(
            lambda known, now_ms: TransactionResult(
                answer=None,
                records=forget_unused(known, some, now_ms=now_ms, expiration_ms=expiration_ms),
            ),
            NOBODY,
        )
        self._go_on("forget", rest, self._forget_unused, self._forget_later)

    def _go_on(
        self,
        purpose: str,
        rest: list[str],
        sweep: Callable[[list[str]], None],
        sweep_later: Callable[[], None],
    ) -> None:
        if not self._is_active():
            return
        if rest:
            self._again(purpose, 0, partial(sweep, rest))
        else:
            sweep_later()

    def _again(self, purpose: str, delay_ms: int, call: Callable[[], None]) -> None:
        """Replaces the timer of the same purpose."""
        known = self._timers.pop(purpose, None)
        if known is not None:
            self._around.timers.cancel(known)
        self._timers[purpose] = self._around.timers.add_after(delay_ms, call)

    # -- its life --------------------------------------------------------------------------

    def _new_state(self) -> TransactionShardState:
        return TransactionShardState()

    def _new_reader(self, report: Report) -> TransactionsLoader:
        return TransactionsLoader(report)

    def _take(self, entry: TransactionRecord) -> None:
        self.state.replay(entry)

    def _chunk_bytes(self) -> int:
        return self._around.config().load_buffer_bytes

    def _begin(self) -> None:
        """What a former coordinator has decided may not have got to every partition."""
        self._abort_later()
        self._forget_later()
        self._marking.begin(self.state.prepared())

    def _forget(self) -> None:
        for timer in self._timers.values():
            self._around.timers.cancel(timer)
        self._timers.clear()
        self._to_tell.clear()
        self.connections.clear()
        self._marking.forget()

    def __str__(self) -> str:
        return f"__transaction_state-{self.partition}"


def _reserve(records: Sequence[TransactionRecord]) -> int:
    """What is opened must be possible to end."""
    values = (each.value for each in records)
    is_open = any(each is not None and each.state is State.ONGOING for each in values)
    return END_BYTES if is_open else 0
