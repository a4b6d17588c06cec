"""Pending markers: the partitions of ended transactions that have not confirmed their marker.

Pure: updated with the results of sent markers; decides what to send and when a transaction is
complete. Invariant: an entry belongs to one end of one transaction, by transactional id, producer
id and epoch, so that a late result is attributed to no other (KAFKA-9777).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.coordinators.transaction.dependencies import TxnMarkerEntry
from penstock.coordinators.transaction.records import Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class EndKey(NamedTuple):
    """One end of one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def is_of(self, transaction: Transaction) -> bool:
        return self[1:] == (transaction.producer_id, transaction.producer_epoch)


# From a partition that has seen a newer producer or coordinator epoch: state was lost here.
ALREADY_ENDED = ErrorCode.PRODUCER_FENCED  # nothing is open there: the transaction has ended
NEWER_OPEN = ErrorCode.INVALID_PRODUCER_EPOCH  # a newer transaction is open there
REFUSED_AS_STALE = (NEWER_OPEN, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
NEWER_EPOCH_SEEN = frozenset((ALREADY_ENDED, *REFUSED_AS_STALE))
_DONE = (ErrorCode.NONE, ALREADY_ENDED)


class _Entry:
    __slots__ = (
        "commit",
        "newer_epoch_seen",
        "newer_open",
        "refused",
        "sent",
        "unmarked",
        "version",
    )

    def __init__(self, transaction: Transaction) -> None:
        self.commit = transaction.state.commits
        self.version = transaction.client_version
        self.unmarked = set(transaction.partitions)
        self.sent: set[TopicPartition] = set()  # unmarked, and without a result yet
        self.refused: set[TopicPartition] = set()  # unmarked, REFUSED_AS_STALE: retried seldom
        self.newer_open: set[TopicPartition] = set()  # refused because of a newer transaction
        self.newer_epoch_seen = False  # by some partition


class PendingMarkers:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._entries: dict[EndKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def only_refused_left(self) -> bool:
        """Whether nothing is pending except what was REFUSED_AS_STALE."""
        return all(entry.unmarked == entry.refused for entry in self._entries.values())

    def begin(self, transactional_id: str, transaction: Transaction) -> EndKey:
        assert transaction.state.is_prepared
        key = EndKey(transactional_id, transaction.producer_id, transaction.producer_epoch)
        self._entries.setdefault(key, _Entry(transaction))
        return key

    def is_marked(self, key: EndKey) -> bool:
        """Whether every partition has its marker."""
        entry = self._entries.get(key)
        return entry is not None and not entry.unmarked

    def newer_epoch_seen(self, key: EndKey) -> bool:
        """Whether a partition has seen epochs of the producer that are unknown here."""
        entry = self._entries.get(key)
        return entry is not None and entry.newer_epoch_seen

    def newer_open(self, key: EndKey) -> frozenset[TopicPartition]:
        """Partitions on which a newer transaction is open that is unknown here."""
        entry = self._entries.get(key)
        return frozenset() if entry is None else frozenset(entry.newer_open & entry.unmarked)

    def marked(self) -> list[EndKey]:
        return [key for key in self._entries if self.is_marked(key)]

    def end(self, key: EndKey) -> None:
        self._entries.pop(key, None)

    def take_due(self, keys: Iterable[EndKey] | None = None, *, epoch: int) -> list[TxnMarkerEntry]:
        """Markers to send now, under this coordinator epoch: neither written nor in flight."""
        wanted = list(self._entries) if keys is None else keys
        due = (self._take(key, epoch) for key in wanted)
        return [marker for marker in due if marker is not None]

    def _take(self, key: EndKey, epoch: int) -> TxnMarkerEntry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        partitions = tuple(sorted(entry.unmarked - entry.sent - entry.refused))
        if not partitions:
            return None
        entry.sent.update(partitions)
        return TxnMarkerEntry(*key, entry.commit, epoch, entry.version, partitions)

    def on_results(
        self, marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]
    ) -> EndKey:
        """NONE or ALREADY_ENDED: the partition is marked. Everything else is due again;
        REFUSED_AS_STALE only after `retry_refused`."""
        key = EndKey(marker.transactional_id, marker.producer_id, marker.producer_epoch)
        entry = self._entries.get(key)
        if entry is not None:
            entry.sent.difference_update(codes)
            entry.unmarked -= {tp for tp, code in codes.items() if code in _DONE}
            entry.refused |= {tp for tp, code in codes.items() if code in REFUSED_AS_STALE}
            entry.newer_open |= {tp for tp, code in codes.items() if code is NEWER_OPEN}
            entry.newer_epoch_seen |= not NEWER_EPOCH_SEEN.isdisjoint(codes.values())
        return key

    def retry_refused(self) -> None:
        """Makes what was REFUSED_AS_STALE due again."""
        for entry in self._entries.values():
            entry.refused.clear()
