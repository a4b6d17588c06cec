"""The state of a log's idempotent and transactional producers.

Checks and applies batches; snapshots and replay are the log's part. Invariant: the state is a
function of the batches applied, so followers and recovered logs reach the leader's state.
Numbers come straight from batch headers, hence plain ints.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.model.ids import NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId, TimestampMs
from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.protocol.batch import MAX_SEQUENCE, NO_SEQUENCE
from penstock.storage.errors import (
    CoordinatorFenced,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    UnknownProducer,
)

WINDOW_BATCHES: Final = 5  # a client may have as many in flight, and so may send them again
NO_COORDINATOR_EPOCH: Final = -1
_SEQUENCES: Final = MAX_SEQUENCE + 1


class BatchMetadata(NamedTuple):
    """Where the first copy of a duplicate batch is stored."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: TimestampMs


class CompletedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    aborted: bool


class ProducerStateEntry(NamedTuple):
    """One producer as in snapshots and DescribeProducers: with its last batch only."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int  # -1 if this epoch has no batch here
    last_offset: Offset  # -1 likewise
    offset_delta: int
    timestamp_ms: TimestampMs  # of the last batch or marker
    coordinator_epoch: int  # -1 before the first marker
    current_txn_first_offset: Offset | None


class _Batch(NamedTuple):
    first_sequence: int  # NO_SEQUENCE: before the producer's last marker, so never a duplicate
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: TimestampMs


class _Producer:
    """Slots and a tuple of batches, because a log can have very many producers."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_seen_ms",
        "producer_epoch",
        "timestamp_ms",
        "txn_first_offset",
    )

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.batches: tuple[_Batch, ...] = ()  # of this epoch only, oldest first
        self.timestamp_ms = NO_TIMESTAMP
        self.last_seen_ms = NO_TIMESTAMP
        self.txn_first_offset: Offset | None = None

    def move_to_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = ()

    def end_batches(self) -> None:
        """A marker has ended them: a batch sent now with their sequences is no copy of theirs.

        The last one stays for its last sequence, where the next batch continues.
        """
        if self.batches:
            self.batches = (self.batches[-1]._replace(first_sequence=NO_SEQUENCE),)

    def touch(self, timestamp_ms: int, now_ms: int | None) -> None:
        self.timestamp_ms = TimestampMs(timestamp_ms)
        self.last_seen_ms = TimestampMs(timestamp_ms if now_ms is None else now_ms)


class ProducerStateManager:
    """Owned by its log, which checks before an append and applies after it."""

    __slots__ = (
        "_completed",
        "_completed_firsts",
        "_name",
        "_ongoing",
        "_producers",
        "map_end_offset",
    )

    def __init__(self, name: str = "this log") -> None:
        self._name = name  # the partition's, for messages
        self._producers: dict[int, _Producer] = {}
        self._ongoing: list[tuple[Offset, ProducerId]] = []  # sorted by first offset
        self._completed: deque[CompletedTxn] = deque()  # not yet below the high watermark
        self._completed_firsts: list[Offset] = []  # their first offsets, sorted
        # The state covers the log up to here. `apply` moves it, and the log moves it for batches
        # without a producer.
        self.map_end_offset = Offset(0)

    def __len__(self) -> int:
        return len(self._producers)

    def rename(self, name: str) -> None:
        """A replay learns late whose producers these are."""
        self._name = name

    # Before an append, on the leader only.

    def find_duplicate(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """The stored copy of this batch, if there is one. Call it before `check`.

        Only batches after the producer's last marker count. A client that purges what it has sent
        and aborts may use the sequences again, so the same sequences before the marker are not
        proof that these records are stored.
        """
        producer = self._producers.get(producer_id)
        if producer is None or producer.producer_epoch != producer_epoch or base_sequence < 0:
            return None
        for batch in producer.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                base_offset = Offset(batch.last_offset - batch.offset_delta)
                return BatchMetadata(base_offset, batch.last_offset, batch.timestamp_ms)
        return None

    def check(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        transactional: bool,
    ) -> None:
        """Raise if the batch may not follow the producer's last one. Changes nothing.

        Stricter than Kafka if the producer is unknown: since KIP-360 Kafka accepts any first
        sequence then, and silently loses the first batch when the second one overtakes it
        (KAFKA-14359, KAFKA-15591). Here it must be 0. A producer that has expired, or that wrote to
        an earlier topic of this name, gets UnknownProducer once and continues with a new epoch.

        A broker that delivers deferred messages has at most one batch under way, so that a gap is
        what this partition has lost, and waiting for it would be in vain.

        A batch without sequences comes from a coordinator (transactional offsets), because those of
        clients are rejected earlier. Only its epoch and transaction are checked.
        """
        is_deliverer = producer_id >= FIRST_DELIVERER_ID
        producer = self._producers.get(producer_id)
        if producer is None:
            if base_sequence > 0 and not is_deliverer:
                raise UnknownProducer(
                    f"{self._name}: producer {producer_id} is unknown here and sent sequence "
                    f"{base_sequence}; send the missing batches first, or continue with a new "
                    f"epoch"
                )
            return
        self._check_epoch(producer, producer_id, producer_epoch)
        if base_sequence != NO_SEQUENCE and not is_deliverer:
            self._check_sequence(
                producer, producer_id, producer_epoch, base_sequence, last_sequence
            )
        if producer.txn_first_offset is not None and not transactional:
            raise InvalidTransactionState(
                f"{self._name}: producer {producer_id} has an open transaction since offset "
                f"{producer.txn_first_offset} but sent a batch outside of it; end it first"
            )

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise if the marker is a zombie's.

        A repeated marker passes however often it is sent, because its coordinator may have lost the
        response (KAFKA-19999).
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        self._check_epoch(producer, producer_id, producer_epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(
                f"{self._name}: marker for producer {producer_id} has coordinator epoch "
                f"{coordinator_epoch}, but epoch {producer.coordinator_epoch} has written one "
                f"already; that coordinator has been replaced"
            )

    def is_past(
        self, producer_id: int, producer_epoch: int, last_ended_epoch: int, coordinator_epoch: int
    ) -> bool:
        """Whether a newer transaction or coordinator makes this marker obsolete.

        True only if there is nothing that it could end: no open transaction, and none whose marker
        may still be truncated. `last_ended_epoch` is the newest epoch that the marker could end.
        """
        producer = self._producers.get(producer_id)
        if producer is None or producer.txn_first_offset is not None:
            return False
        has_later_data = producer.producer_epoch > last_ended_epoch and bool(producer.batches)
        if not (
            has_later_data
            or producer.producer_epoch > producer_epoch
            or producer.coordinator_epoch > coordinator_epoch
        ):
            return False
        return all(txn.producer_id != producer_id for txn in self._completed)

    # After an append; also on followers and in recovery, where nothing is checked.

    def apply(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        transactional: bool,
        now_ms: int | None = None,
    ) -> None:
        """Apply a stored data batch.

        Expiration counts from `now_ms` where it is given, because `timestamp_ms` is set by the
        client and can be years off.
        """
        producer = self._producer_at(producer_id, producer_epoch)
        batch = _Batch(
            base_sequence,
            last_sequence,
            Offset(last_offset),
            last_offset - base_offset,
            TimestampMs(timestamp_ms),
        )
        producer.batches = (*producer.batches[1 - WINDOW_BATCHES :], batch)
        producer.touch(timestamp_ms, now_ms)
        if transactional and producer.txn_first_offset is None:
            self._open_transaction(producer, producer_id, base_offset)
        self.map_end_offset = Offset(last_offset + 1)

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp_ms: int,
        now_ms: int | None = None,
    ) -> CompletedTxn | None:
        """Apply a stored marker; None if it ended nothing: a repeated one, or one without data."""
        producer = self._producer_at(producer_id, producer_epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.end_batches()
        producer.touch(timestamp_ms, now_ms)
        self.map_end_offset = Offset(offset + 1)
        first_offset = producer.txn_first_offset
        if first_offset is None:
            return None
        producer.txn_first_offset = None
        pid = ProducerId(producer_id)
        del self._ongoing[bisect_left(self._ongoing, (first_offset, pid))]
        completed = CompletedTxn(pid, first_offset, Offset(offset), not commit)
        self._completed.append(completed)
        insort(self._completed_firsts, first_offset)
        return completed

    # Transactions and the last stable offset.

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the
        high watermark.

        It can be below the log start offset, if retention was faster than the transaction.
        """
        ongoing, completed = self._ongoing, self._completed_firsts
        if not completed:
            return ongoing[0][0] if ongoing else None
        return min(ongoing[0][0], completed[0]) if ongoing else completed[0]

    def last_stable_offset_for(self, completed: CompletedTxn) -> Offset:
        """The last stable offset once this transaction is complete, for its index entry."""
        for first_offset, producer_id in self._ongoing[:2]:  # at most one is the producer's own
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    def on_high_watermark(self, offset: int) -> None:
        """Completed transactions whose markers are below it are stable from now on."""
        completed = self._completed
        while completed and completed[0].last_offset < offset:
            first_offset = completed.popleft().first_offset
            del self._completed_firsts[bisect_left(self._completed_firsts, first_offset)]

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of exactly this epoch is open."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.txn_first_offset is not None
            and producer.producer_epoch == producer_epoch
        )

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a newer epoch of this producer is known."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer_epoch < producer.producer_epoch

    # All producers.

    def find(self, producer_id: int) -> ProducerStateEntry | None:
        producer = self._producers.get(producer_id)
        return None if producer is None else _view(producer_id, producer)

    def producers(self) -> Sequence[ProducerStateEntry]:
        return [_view(producer_id, producer) for producer_id, producer in self._producers.items()]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers idle for that long; returns their number. Those in a transaction stay,
        and those that deliver deferred messages: an unconfirmed batch is sent again however late
        it is."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.last_seen_ms >= expiration_ms
            and producer.txn_first_offset is None
            and producer_id < FIRST_DELIVERER_ID
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._completed_firsts.clear()
        self.map_end_offset = Offset(0)

    def load(
        self,
        entries: Iterable[ProducerStateEntry],
        map_end_offset: int = 0,
        now_ms: int | None = None,
    ) -> None:
        """Load a snapshot taken at `map_end_offset`. With `now_ms` expiration counts from then,
        because timestamps are set by clients."""
        self.clear()
        for entry in entries:
            self._load_entry(entry, now_ms)
        self.map_end_offset = Offset(map_end_offset)

    def _load_entry(self, entry: ProducerStateEntry, now_ms: int | None) -> None:
        producer = self._producer_at(entry.producer_id, entry.producer_epoch)
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.touch(entry.timestamp_ms, now_ms)
        if entry.last_offset >= 0:
            producer.batches = (_last_batch(entry),)
        if entry.current_txn_first_offset is not None:
            self._open_transaction(producer, entry.producer_id, entry.current_txn_first_offset)
        elif entry.coordinator_epoch != NO_COORDINATOR_EPOCH:
            # The snapshot does not say where the last marker is. Transactional batches open a
            # transaction, so with none open the last batch lies before it.
            producer.end_batches()

    def _producer_at(self, producer_id: int, producer_epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(producer_epoch)
        else:
            # Even to a lower one: the producer had expired at the leader that accepted it.
            producer.move_to_epoch(producer_epoch)
        return producer

    def _open_transaction(self, producer: _Producer, producer_id: int, first_offset: int) -> None:
        producer.txn_first_offset = Offset(first_offset)
        insort(self._ongoing, (producer.txn_first_offset, ProducerId(producer_id)))

    def _check_epoch(self, producer: _Producer, producer_id: int, producer_epoch: int) -> None:
        if producer_epoch < producer.producer_epoch:
            raise InvalidProducerEpoch(
                f"{self._name}: producer {producer_id} wrote with epoch {producer_epoch}, but "
                f"epoch {producer.producer_epoch} exists; a newer instance has taken over"
            )

    def _check_sequence(
        self,
        producer: _Producer,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
    ) -> None:
        batches = producer.batches if producer_epoch == producer.producer_epoch else ()
        expected = (batches[-1].last_sequence + 1) % _SEQUENCES if batches else 0
        if base_sequence == expected:
            return
        # After a marker, earlier sequences may be those of a transaction that it has ended.
        is_marked = producer.coordinator_epoch != NO_COORDINATOR_EPOCH
        if batches and not is_marked and _is_long_before(last_sequence, batches[0].first_sequence):
            raise DuplicateSequence(
                f"{self._name}: producer {producer_id} sent sequences {base_sequence} to "
                f"{last_sequence} again; they are stored, at offsets that are no longer known"
            )
        raise self._gap(producer_id, producer_epoch, base_sequence, expected)

    def _gap(
        self, producer_id: int, producer_epoch: int, base_sequence: int, expected: int
    ) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            f"{self._name}: producer {producer_id} with epoch {producer_epoch} sent sequence "
            f"{base_sequence} where {expected} is next; send the missing batches first, or "
            f"continue with a new epoch"
        )


def _is_long_before(sequence: int, first_remembered: int) -> bool:
    """Whether the sequence was certainly stored before the window.

    Clients count a duplicate as stored, so in doubt the answer is no. After the wrap from 2^31-1 to
    0 a smaller number may be one that is still to come, and a larger one proves nothing.
    """
    return 0 < first_remembered - sequence < _SEQUENCES // 2


def _last_batch(entry: ProducerStateEntry) -> _Batch:
    first_sequence = entry.last_sequence
    if first_sequence != NO_SEQUENCE:
        first_sequence = (entry.last_sequence - entry.offset_delta) % _SEQUENCES
    return _Batch(
        first_sequence,
        entry.last_sequence,
        entry.last_offset,
        entry.offset_delta,
        entry.timestamp_ms,
    )


def _view(producer_id: int, producer: _Producer) -> ProducerStateEntry:
    batches = producer.batches
    last = batches[-1] if batches else _Batch(-1, NO_SEQUENCE, Offset(-1), 0, NO_TIMESTAMP)
    return ProducerStateEntry(
        ProducerId(producer_id),
        ProducerEpoch(producer.producer_epoch),
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.timestamp_ms,
        producer.coordinator_epoch,
        producer.txn_first_offset,
    )
