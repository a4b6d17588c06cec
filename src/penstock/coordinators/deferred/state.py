"""The messages, producers and deliveries of one shard, as the log's records describe them.

Decides nothing. Durable state changes by `replay` alone, so that a replay of the log, compacted or
not, gives the same again. Which messages are ready, in memory and due, is volatile: it follows from
the rest and the time. Values and keys of messages stay in the log.
"""

from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from penstock.coordinators.deferred.due_index import DueEntry, DueIndex, RunStore
from penstock.coordinators.deferred.half_records import HalfIdRecord, SourceRecord
from penstock.coordinators.deferred.half_state import HalfState
from penstock.coordinators.deferred.half_values import Half, HeldMessage
from penstock.coordinators.deferred.pending_numbers import PendingNumbers
from penstock.coordinators.deferred.ready_queue import ReadyQueue
from penstock.coordinators.deferred.records import (
    DeferredRecord,
    DelivererRecord,
    DeliveryRecord,
    EndedRecord,
    MessageRecord,
    ProducerRecord,
)
from penstock.coordinators.deferred.transactions import OpenTransactions, UncommittedMessage
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    Delivery,
    EndedMessage,
    ProducerBatches,
    Target,
)
from penstock.model.ids import NO_PRODUCER_ID

Key = TypeVar("Key")
Value = TypeVar("Value")

_OVERHEAD_BYTES = 64  # of a message's record, besides key, value and headers
NOTHING_SENT = Delivery(0, ())


class DeferredShardState:
    """Owned by its shard."""

    def __init__(self, runs: RunStore) -> None:
        self.next_number = 0
        self.deliverer: DelivererRecord | None = None
        self.pending = PendingNumbers()
        self.by_delay_key: dict[DelayKey, int] = {}  # the newest pending message of each
        self.producers: dict[tuple[Target, int], ProducerBatches] = {}
        self.deliveries: dict[Target, Delivery] = {}
        self.ended: dict[DelayKey, EndedMessage] = {}
        self.transactions = OpenTransactions()
        self.replaced: dict[int, None] = {}  # by committed transactions; their records are left
        self.reused: dict[DelayKey, None] = {}  # likewise; records of how they once ended are left
        self._delay_keys: dict[int, DelayKey] = {}  # by the number of a pending message
        self.halves = HalfState()
        self._offsets: dict[int, int] = {}  # of the records of exactly these
        self._sent: dict[int, DueEntry | None] = {}  # unconfirmed; None: not taken out of `_due`
        self._due = DueIndex(runs)
        self._runs = runs
        self._ready_runs = count(1)  # below 0, where no hour is
        self._ready: dict[Target, ReadyQueue] = {}  # due, and not sent; none is empty

    # -- replaying -------------------------------------------------------------------------

    def replay(
        self, record: DeferredRecord, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """`producer_id`: whose transaction the record was written in."""
        match record:
            case MessageRecord(number, None):
                self._remove(number)
            case MessageRecord(number, message) if message is not None:
                if producer_id == NO_PRODUCER_ID:
                    self._add(number, message, offset)
                else:
                    self._keep_until_commit(producer_id, number, message, offset)
            case ProducerRecord(target, producer_id, batches):
                _put(self.producers, (target, producer_id), batches)
            case DeliveryRecord(target, delivery):
                self._replay_delivery(target, delivery)
            case EndedRecord(delay_key, ended):
                _put(self.ended, delay_key, ended)
                self.reused.pop(delay_key, None)
            case DelivererRecord():
                self.deliverer = record
            case HalfIdRecord(half_key, half):
                for held in self.halves.replay(half_key, half):
                    assert half is not None, "a half that is forgotten releases nothing"
                    self._release(held, half)
            case SourceRecord(group, source, end_offset):
                self.halves.positions[(group, source)] = end_offset

    def _add(self, number: int, message: DeferredMessage, offset: int) -> None:
        self.next_number = max(self.next_number, number + 1)
        if message.hold is not None:
            self._hold(number, message, offset)
            return
        entry = DueEntry(message.due_ms, number, offset, _size_bytes(message), message.target)
        self._put_pending(entry, message.delay_key)

    def _put_pending(self, entry: DueEntry, delay_key: DelayKey | None) -> None:
        self.pending.add(entry.number)
        if delay_key is not None:
            self.by_delay_key[delay_key] = entry.number
            self._delay_keys[entry.number] = delay_key
            self._offsets[entry.number] = entry.offset
        self._due.add(entry)

    # -- transactions ----------------------------------------------------------------------

    def _keep_until_commit(
        self, producer_id: int, number: int, message: DeferredMessage, offset: int
    ) -> None:
        self.next_number = max(self.next_number, number + 1)
        kept = UncommittedMessage(
            number,
            offset,
            _size_bytes(message),
            message.target,
            message.delay_key,
            message.due_ms,
            message.commit_delay_ms or 0,
        )
        self.transactions.add(producer_id, kept)

    def end_transaction(self, producer_id: int, *, commit: bool, ended_ms: int) -> None:
        """By its marker. What it committed is a message like any other from here on."""
        messages = self.transactions.end(producer_id)
        for message in messages if commit else ():
            if message.delay_key is not None:
                self._replace(message.delay_key)
            entry = DueEntry(
                max(message.due_ms, ended_ms + message.delay_ms),
                message.number,
                message.offset,
                message.size_bytes,
                message.target,
            )
            self._put_pending(entry, message.delay_key)

    def _replace(self, delay_key: DelayKey) -> None:
        """The message of this id that waits, unless it is sent, and how an earlier one ended."""
        number = self.find_waiting(delay_key)
        if number is not None:
            self._remove(number)
            self.replaced[number] = None
        if self.ended.pop(delay_key, None) is not None:
            self.reused[delay_key] = None

    # -- half messages, deliveries, ends ---------------------------------------------------

    def _hold(self, number: int, message: DeferredMessage, offset: int) -> None:
        assert message.hold is not None
        held = HeldMessage(
            number,
            offset,
            _size_bytes(message),
            message.target,
            message.due_ms,
            message.hold.delay_ms,
            message.hold.topic,
        )
        committed = self.halves.hold(message.hold.key, held)
        if committed is not None:
            self._release(held, committed)

    def _release(self, held: HeldMessage, committed: Half) -> None:
        """Its half id is committed: from here on it is a message like any other."""
        due_ms = max(held.due_ms, committed.since_ms + held.delay_ms)
        self.pending.add(held.number)
        self._due.add(DueEntry(due_ms, held.number, held.offset, held.size_bytes, held.target))

    def _remove(self, number: int) -> None:
        """It stays in the index until it is taken out: whether it is pending is what counts."""
        self.next_number = max(self.next_number, number + 1)
        self.pending.discard(number)
        self.replaced.pop(number, None)
        self.halves.remove(number)
        self._sent.pop(number, None)
        self._offsets.pop(number, None)
        delay_key = self._delay_keys.pop(number, None)
        if delay_key is not None and self.by_delay_key.get(delay_key) == number:
            _put(self.by_delay_key, delay_key, self._find_sent_before(delay_key))

    def _find_sent_before(self, delay_key: DelayKey) -> int | None:
        """An earlier message of the same id, which was sent and could not be replaced."""
        sent = [number for number in self._sent if self._delay_keys.get(number) == delay_key]
        return max(sent, default=None)

    def _replay_delivery(self, target: Target, delivery: Delivery | None) -> None:
        before = self.deliveries.get(target, NOTHING_SENT)
        _put(self.deliveries, target, delivery)
        for number in before.numbers:
            self._sent.pop(number, None)
        if delivery is not None:
            self._sent.update(dict.fromkeys(delivery.numbers))
            self._take_sent(target)

    def _take_sent(self, target: Target) -> None:
        """Takes what was sent out of what is ready: the first ones, unless they have ended."""
        ready = self._ready.get(target)
        if ready is None:
            return
        while ready and (
            ready.peek().number in self._sent or ready.peek().number not in self.pending
        ):
            entry = ready.popleft()
            if entry.number in self._sent:
                self._sent[entry.number] = entry
        if not ready:
            del self._ready[target]

    def on_loaded(self, end_offset: int) -> None:
        """No number is given twice, also if compaction has removed all records of the first:
        another replica may still have them. A number is never above its record's offset."""
        self.next_number = max(self.next_number, end_offset)

    # -- what is due -----------------------------------------------------------------------

    def take_due(self, now_ms: int, limit: int | None = None) -> None:
        """Makes ready what is due by now; with a limit, a part of it."""
        for entry in self._due.take_due(now_ms, limit):
            if entry.number in self._sent:
                self._sent[entry.number] = entry
            elif entry.number in self.pending:
                self._put_ready(entry)

    def _put_ready(self, entry: DueEntry) -> None:
        ready = self._ready.get(entry.target)
        if ready is None:
            ready = ReadyQueue(entry.target, self._runs, lambda: -next(self._ready_runs))
            self._ready[entry.target] = ready
        ready.append(entry)

    def next_due_ms(self) -> int | None:
        return self._due.next_due_ms()

    def ready_targets(self) -> list[Target]:
        """With something to send, and nothing unconfirmed."""
        return [target for target in self._ready if not self.find_delivery(target).numbers]

    def unconfirmed_targets(self) -> list[Target]:
        return [target for target, delivery in self.deliveries.items() if delivery.numbers]

    def ready(self, target: Target) -> Iterator[DueEntry]:
        """In order, without those that ended meanwhile."""
        self._take_sent(target)
        entries = self._ready.get(target, ())
        return (entry for entry in entries if entry.number in self.pending)

    def find_delivery(self, target: Target) -> Delivery:
        return self.deliveries.get(target, NOTHING_SENT)

    def find_sent(self, target: Target) -> list[DueEntry] | None:
        """The unconfirmed messages of a target, in order; None while one of them is not due by
        this broker's clock, which can be behind that of the broker that sent them."""
        entries = [self._sent[number] for number in self.find_delivery(target).numbers]
        due = [entry for entry in entries if entry is not None]
        return due if len(due) == len(entries) else None

    def find_missing(self, target: Target) -> int | None:
        """A message that was sent to the target and is unconfirmed, but damaged in the log."""
        numbers = self.find_delivery(target).numbers
        return next((number for number in numbers if number not in self.pending), None)

    def find_oldest_due_ms(self) -> int | None:
        """Since when the message that is overdue for the longest time is due."""
        ready = [entries.peek().due_ms for entries in self._ready.values()]
        sent = [entry.due_ms for entry in self._sent.values() if entry is not None]
        return min(ready + sent, default=None)

    def is_sent(self, number: int) -> bool:
        return number in self._sent

    @property
    def has_replaced(self) -> bool:
        """Whether the log has records that no longer count, and does not say so for ever."""
        return bool(self.replaced or self.reused)

    def find_waiting(self, delay_key: DelayKey) -> int | None:
        """The newest message of the id, unless it has been sent."""
        number = self.by_delay_key.get(delay_key)
        return None if number is None or number in self._sent else number

    def get_offset(self, number: int) -> int:
        """Of the record of a message that has a delay id and waits."""
        return self._offsets[number]

    def find_delay_key(self, number: int) -> DelayKey | None:
        return self._delay_keys.get(number)

    def snapshot(self) -> object:
        """The durable state; equal for equal states."""
        return (
            self.deliverer,
            frozenset(number for number in range(self.next_number) if number in self.pending),
            dict(self.by_delay_key),
            dict(self.producers),
            dict(self.deliveries),
            dict(self.ended),
            self.transactions.snapshot(),
            frozenset(self._sent),
            self.halves.snapshot(),
        )


def _size_bytes(message: DeferredMessage) -> int:
    headers = sum(len(name) + len(value or b"") + 8 for name, value in message.headers)
    return _OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"") + headers


def _put(table: dict[Key, Value], key: Key, value: Value | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
