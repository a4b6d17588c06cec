"""Sends a shard's transaction markers and retries until every partition has its own.

A partition that refuses a marker as stale is retried too, but seldom, and without delaying others.
Decides nothing about transactions: it tells its shard when one is fully marked. Owned by the event
loop. Invariant: a marker is sent only after the decision it announces is committed in the log.
"""

from collections.abc import Callable, Mapping

from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.coordinators.transaction.dependencies import (
    MarkerChannel,
    PartitionLookup,
    TxnMarkerEntry,
)
from penstock.coordinators.transaction.pending_markers import (
    ALREADY_ENDED,
    NEWER_EPOCH_SEEN,
    REFUSED_AS_STALE,
    EndKey,
    PendingMarkers,
)
from penstock.coordinators.transaction.records import Transaction
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.timing_wheel import Timer

FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 5_000
REFUSED_BACKOFF_MS = 60_000  # before a marker is sent again that was refused as stale


class MarkerDelivery:
    """`forget` it when its shard reloads or ends, so that results of earlier sends are ignored."""

    def __init__(
        self,
        *,
        channel: MarkerChannel,
        partitions: PartitionLookup,
        timers: CoordinatorTimers,
        logger: EventLogger,
        coordinator_epoch: Callable[[], int],
        on_marked: Callable[[EndKey], None],
    ) -> None:
        self._channel = channel
        self._partitions = partitions
        self._timers = timers
        self._logger = logger
        self._coordinator_epoch = coordinator_epoch
        self._on_marked = on_marked
        self._pending = PendingMarkers()
        self._warned: set[EndKey] = set()  # a warning has been logged
        self._backoff_ms = FIRST_BACKOFF_MS
        self._timer: Timer[Callable[[], None]] | None = None
        self._refused_timer: Timer[Callable[[], None]] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, prepared: Mapping[str, Transaction]) -> None:
        """The decisions of these transactions are committed."""
        pending = self._pending
        keys = [pending.begin(name, transaction) for name, transaction in prepared.items()]
        self._send(pending.take_due(keys, epoch=self._coordinator_epoch()))

    def end(self, key: EndKey) -> None:
        """The transaction is complete."""
        self._pending.end(key)
        self._warned.discard(key)
        if self._pending.only_refused_left:
            self._backoff_ms = FIRST_BACKOFF_MS

    def newer_epoch_seen(self, key: EndKey) -> bool:
        """Whether the producer must not continue with the epochs that are known here."""
        return self._pending.newer_epoch_seen(key)

    def newer_open(self, key: EndKey) -> frozenset[TopicPartition]:
        """Partitions on which a newer transaction is open that is unknown here."""
        return self._pending.newer_open(key)

    def retry_now(self) -> None:
        """Leaders or topics have changed, so a pending retry may succeed now."""
        if self._timer is not None:
            self._timers.cancel(self._timer)
            self._retry()

    def retry_later(self) -> None:
        if self._timer is None:
            self._timer = self._timers.add_after(self._backoff_ms, self._retry)
            self._backoff_ms = min(2 * self._backoff_ms, MAX_BACKOFF_MS)

    def forget(self) -> None:
        self._pending = PendingMarkers()
        self._warned.clear()
        self._backoff_ms = FIRST_BACKOFF_MS
        for timer in (self._timer, self._refused_timer):
            if timer is not None:
                self._timers.cancel(timer)
        self._timer = self._refused_timer = None

    def _retry(self) -> None:
        self._timer = None
        for key in self._pending.marked():
            self._on_marked(key)
        self._send(self._pending.take_due(epoch=self._coordinator_epoch()))

    def _retry_refused_later(self) -> None:
        if self._refused_timer is None:
            self._refused_timer = self._timers.add_after(REFUSED_BACKOFF_MS, self._retry_refused)

    def _retry_refused(self) -> None:
        self._refused_timer = None
        self._pending.retry_refused()
        self._send(self._pending.take_due(epoch=self._coordinator_epoch()))

    def _send(self, markers: list[TxnMarkerEntry]) -> None:
        if not markers:
            return
        pending = self._pending

        def on_results(marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]) -> None:
            if pending is self._pending:
                self._on_results(marker, codes)

        self._channel.send(markers, on_results)

    def _on_results(
        self, marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        results = {tp: self._without_deleted(tp, code) for tp, code in codes.items()}
        key = self._pending.on_results(marker, results)
        distinct = set(results.values())
        if not distinct.isdisjoint(NEWER_EPOCH_SEEN):
            self._warn(key, results)
        if not distinct.isdisjoint(REFUSED_AS_STALE):
            self._retry_refused_later()
        if self._pending.is_marked(key):
            self._on_marked(key)
        elif not distinct <= {ErrorCode.NONE, *NEWER_EPOCH_SEEN}:
            self.retry_later()

    def _without_deleted(self, tp: TopicPartition, code: ErrorCode) -> ErrorCode:
        """NONE for a deleted partition: its part of the transaction went with the topic."""
        is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_deleted = is_unknown and not self._partitions.has_partition(tp)
        return ErrorCode.NONE if is_deleted else code

    def _warn(self, key: EndKey, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        """Warn once per end of a transaction."""
        if key in self._warned:
            return
        self._warned.add(key)
        refusals = ", ".join(
            f"{tp}: {code.name}" for tp, code in codes.items() if code in NEWER_EPOCH_SEEN
        )
        self._logger.warning(
            "markers_not_written",
            f"the markers of transactional id {key.transactional_id!r} (producer id "
            f"{key.producer_id}, epoch {key.producer_epoch}) meet a newer producer or coordinator "
            f"epoch that is unknown here: {refusals}. The newest state of this id was lost; it "
            f"continues with another producer id. Where the code is not {ALREADY_ENDED.name}, a "
            f"transaction is still open: find it with `penstock transaction find-hanging` and "
            f"abort it; until then the marker is sent again every {REFUSED_BACKOFF_MS // 1000} s",
        )
