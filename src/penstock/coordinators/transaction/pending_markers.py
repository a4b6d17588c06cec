"""What still has to be marked: the partitions of ended transactions that do not know of it yet.

Pure: changed by what happens to markers, and decides what is sent and when a transaction is over.
Invariant: an entry is of one end of one transaction, by transactional id, producer id and epoch, so
an answer that is late is nobody's (KAFKA-9777).
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


# Of a partition that knows of a later producer or coordinator than this one does: state was lost.
PAST = ErrorCode.PRODUCER_FENCED  # nothing is open there: what the marker was to end has ended
HOLDS_LATER = ErrorCode.INVALID_PRODUCER_EPOCH  # a later transaction is open there
KNOWS_BETTER = (HOLDS_LATER, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
OUTLIVING = frozenset((PAST, *KNOWS_BETTER))
_DONE = (ErrorCode.NONE, PAST)


class _Entry:
    __slots__ = ("commit", "is_outlived", "later", "refused", "sent", "unmarked", "version")

    def __init__(self, transaction: Transaction) -> None:
        self.commit = transaction.state.commits
        self.version = transaction.client_version
        self.unmarked = set(transaction.partitions)
        self.sent: set[TopicPartition] = set()  # of those, without an answer as yet
        self.refused: set[TopicPartition] = set()  # ... by who knows better: not due for long
        self.later: set[TopicPartition] = set()  # ... since they hold a later one open
        self.is_outlived = False  # somebody knows of a later one


class PendingMarkers:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._entries: dict[EndKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_through(self) -> bool:
        """Whether nothing is left but what was refused by those who know better."""
        return all(each.unmarked == each.refused for each in self._entries.values())

    def begin(self, transactional_id: str, transaction: Transaction) -> EndKey:
        assert transaction.state.is_prepared
        key = EndKey(transactional_id, transaction.producer_id, transaction.producer_epoch)
        self._entries.setdefault(key, _Entry(transaction))
        return key

    def is_marked(self, key: EndKey) -> bool:
        """Whether every partition has its marker. A function of what was begun and answered."""
        entry = self._entries.get(key)
        return entry is not None and not entry.unmarked

    def is_outlived(self, key: EndKey) -> bool:
        """Whether a partition has seen epochs of the producer that nobody knows of here."""
        entry = self._entries.get(key)
        return entry is not None and entry.is_outlived

    def later(self, key: EndKey) -> frozenset[TopicPartition]:
        """Partitions that hold a later transaction open, of which nobody knows here."""
        entry = self._entries.get(key)
        return frozenset() if entry is None else frozenset(entry.later & entry.unmarked)

    def marked(self) -> list[EndKey]:
        return [key for key in self._entries if self.is_marked(key)]

    def end(self, key: EndKey) -> None:
        self._entries.pop(key, None)

    def take_due(self, keys: Iterable[EndKey] | None = None, *, epoch: int) -> list[TxnMarkerEntry]:
        """To be sent now, by a coordinator of this epoch: what is neither marked nor on its way."""
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

    def take_answers(
        self, marker: TxnMarkerEntry, codes: Mapping[TopicPartition, ErrorCode]
    ) -> EndKey:
        """NONE or PAST: it is marked. Everything else is due again, what is refused by who knows
        better only when it is asked for again."""
        key = EndKey(marker.transactional_id, marker.producer_id, marker.producer_epoch)
        entry = self._entries.get(key)
        if entry is not None:
            entry.sent.difference_update(codes)
            entry.unmarked -= {each for each, code in codes.items() if code in _DONE}
            entry.refused |= {each for each, code in codes.items() if code in KNOWS_BETTER}
            entry.later |= {each for each, code in codes.items() if code is HOLDS_LATER}
            entry.is_outlived |= not OUTLIVING.isdisjoint(codes.values())
        return key

    def ask_again(self) -> None:
        """What was refused by those who know better is due again."""
        for entry in self._entries.values():
            entry.refused.clear()
