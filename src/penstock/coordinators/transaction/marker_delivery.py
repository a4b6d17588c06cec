"""Sends a shard's markers, and again what did not get through, until every partition has its own.

A partition that knows better is asked again too, but seldom: others do not wait for it. Decides
nothing about transactions: tells its shard when one is marked. Owned by the event loop.
Invariant: a marker is sent only when the decision that it tells of is committed in the log.
"""

from collections.abc import Callable, Mapping

from penstock.coordinators.runtime.dependencies import CoordinatorTimers, Report
from penstock.coordinators.transaction.dependencies import (
    KnownPartitions,
    MarkerChannel,
    TxnMarkerEntry,
)
from penstock.coordinators.transaction.pending_markers import (
    KNOWS_BETTER,
    OUTLIVING,
    PAST,
    EndKey,
    PendingMarkers,
)
from penstock.coordinators.transaction.records import Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.timing_wheel import Timer

FIRST_PAUSE_MS = 50
LONGEST_PAUSE_MS = 5_000
REFUSED_PAUSE_MS = 60_000  # before those are asked again who know better


class MarkerDelivery:
    """`forget` it when its shard is loaded anew or gone: answers of before are nobody's then."""

    def __init__(
        self,
        *,
        channel: MarkerChannel,
        known: KnownPartitions,
        timers: CoordinatorTimers,
        report: Report,
        coordinator_epoch: Callable[[], int],
        on_marked: Callable[[EndKey], None],
    ) -> None:
        self._channel = channel
        self._known = known
        self._timers = timers
        self._report = report
        self._coordinator_epoch = coordinator_epoch
        self._on_marked = on_marked
        self._outstanding = PendingMarkers()
        self._complained: set[EndKey] = set()  # that it was told to people
        self._pause_ms = FIRST_PAUSE_MS
        self._timer: Timer[Callable[[], None]] | None = None
        self._refused_timer: Timer[Callable[[], None]] | None = None

    def __len__(self) -> int:
        return len(self._outstanding)

    def begin(self, decided: Mapping[str, Transaction]) -> None:
        """These ends are committed."""
        outstanding = self._outstanding
        keys = [outstanding.begin(name, each) for name, each in decided.items()]
        self._send(outstanding.take_due(keys, epoch=self._coordinator_epoch()))

    def end(self, key: EndKey) -> None:
        """It is over."""
        self._outstanding.end(key)
        self._complained.discard(key)
        if self._outstanding.is_through:
            self._pause_ms = FIRST_PAUSE_MS

    def is_outlived(self, key: EndKey) -> bool:
        """Whether the producer may not go on with the epochs that are known of it here."""
        return self._outstanding.is_outlived(key)

    def later(self, key: EndKey) -> frozenset[TopicPartition]:
        """Partitions that hold a later transaction open, of which nobody knows here."""
        return self._outstanding.later(key)

    def hurry(self) -> None:
        """Leaders have changed, or topics: what waits may get through now."""
        if self._timer is not None:
            self._timers.cancel(self._timer)
            self._send_again()

    def try_again_later(self) -> None:
        """Something did not get through."""
        if self._timer is None:
            self._timer = self._timers.add_after(self._pause_ms, self._send_again)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def forget(self) -> None:
        self._outstanding = PendingMarkers()
        self._complained.clear()
        self._pause_ms = FIRST_PAUSE_MS
        for timer in (self._timer, self._refused_timer):
            if timer is not None:
                self._timers.cancel(timer)
        self._timer = self._refused_timer = None

    def _send_again(self) -> None:
        self._timer = None
        for key in self._outstanding.marked():
            self._on_marked(key)
        self._send(self._outstanding.take_due(epoch=self._coordinator_epoch()))

    def _ask_again_later(self) -> None:
        """Those who know better."""
        if self._refused_timer is None:
            self._refused_timer = self._timers.add_after(REFUSED_PAUSE_MS, self._ask_again)

    def _ask_again(self) -> None:
        self._refused_timer = None
        self._outstanding.ask_again()
        self._send(self._outstanding.take_due(epoch=self._coordinator_epoch()))

    def _send(self, markers: list[TxnMarkerEntry]) -> None:
        if not markers:
            return
        outstanding = self._outstanding

        def take(marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]) -> None:
            if outstanding is self._outstanding:
                self._take_answers(marker, codes)

        self._channel.send(markers, take)

    def _take_answers(
        self, marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        judged = {each: self._judge(each, code) for each, code in codes.items()}
        key = self._outstanding.take_answers(marker, judged)
        found = set(judged.values())
        if not found.isdisjoint(OUTLIVING):
            self._complain(key, judged)
        if not found.isdisjoint(KNOWS_BETTER):
            self._ask_again_later()
        if self._outstanding.is_marked(key):
            self._on_marked(key)
        elif not found <= {ErrorCode.NONE, *OUTLIVING}:
            self.try_again_later()

    def _judge(self, partition: TopicPartition, code: ErrorCode) -> ErrorCode:
        """With its topic, a partition's part of the transaction has gone too."""
        is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_gone = is_unknown and not self._known.has_partition(partition)
        return ErrorCode.NONE if is_gone else code

    def _complain(self, key: EndKey, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        """Once for each."""
        if key in self._complained:
            return
        self._complained.add(key)
        told = ", ".join(
            f"{each}: {code.name}" for each, code in codes.items() if code in OUTLIVING
        )
        self._report(
            f"the end of {key.transactional_id!r}'s transaction (producer {key.producer_id}, epoch "
            f"{key.producer_epoch}) meets a later producer or coordinator, of which nothing is "
            f"known here: {told}. The newest state of this id was lost; it goes on with another "
            f"producer id. Where that is not {PAST.name}, something is open: find it with "
            f"`penstock transaction find-hanging` and abort it; until then the end is sent again "
            f"every {REFUSED_PAUSE_MS // 1000} s"
        )
