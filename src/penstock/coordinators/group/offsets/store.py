"""The committed offsets of one shard, as the log's records describe them. Decides nothing.

Changed by `replay` and `end_transaction` alone, so that a replay of the log gives the same again.
Invariant: there are no empty entries; a group is here exactly while it has an offset.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.coordinators.group.records import OffsetKey, OffsetValue
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition


class Stored(NamedTuple):
    value: OffsetValue
    record_offset: int  # offset of its record in the log


Offsets = dict[TopicPartition, Stored]
_NOTHING: Mapping[TopicPartition, Stored] = {}


class OffsetStore:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, Offsets] = {}
        # Committed in an open transaction: producer id -> group -> offsets.
        self._pending: dict[int, dict[str, Offsets]] = {}

    # -- queries ---------------------------------------------------------------------------

    def find(self, group: str, tp: TopicPartition) -> OffsetValue | None:
        stored = self._by_group.get(group, _NOTHING).get(tp)
        return None if stored is None else stored.value

    def of_group(self, group: str) -> Iterator[tuple[TopicPartition, OffsetValue]]:
        """Offsets in order of their first commit. The store must not change meanwhile."""
        for tp, stored in self._by_group.get(group, _NOTHING).items():
            yield tp, stored.value

    def has_group(self, group: str) -> bool:
        """Whether it has an offset, committed or pending in an open transaction."""
        return group in self._by_group or self.has_pending(group)

    def groups(self) -> set[str]:
        pending = (group for groups in self._pending.values() for group in groups)
        return {*self._by_group, *pending}

    def has_pending(self, group: str) -> bool:
        return any(group in groups for groups in self._pending.values())

    def pending_of(self, group: str) -> set[TopicPartition]:
        """Partitions with an offset pending in an open transaction."""
        pending: set[TopicPartition] = set()
        for groups in self._pending.values():
            pending.update(groups.get(group, _NOTHING))
        return pending

    def count(self) -> int:
        return sum(map(len, self._by_group.values()))

    def snapshot(self) -> object:
        """The state; equal for equal states."""
        groups = {group: dict(offsets) for group, offsets in self._by_group.items()}
        pending = {
            producer_id: {group: dict(offsets) for group, offsets in groups.items()}
            for producer_id, groups in self._pending.items()
        }
        return groups, pending

    # -- replaying -------------------------------------------------------------------------

    def replay(
        self,
        key: OffsetKey,
        value: OffsetValue | None,
        *,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        tp = TopicPartition(key.topic, key.partition)
        if value is None:
            self._remove(key.group, tp)
            return
        is_committed = producer_id == NO_PRODUCER_ID
        groups = self._by_group if is_committed else self._pending.setdefault(producer_id, {})
        groups.setdefault(key.group, {})[tp] = Stored(value, record_offset)

    def _remove(self, group: str, tp: TopicPartition) -> None:
        """Remove it from open transactions, too, so that their commit does not restore it."""
        _remove_from(self._by_group, group, tp)
        for producer_id in list(self._pending):
            groups = self._pending[producer_id]
            _remove_from(groups, group, tp)
            if not groups:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        groups = self._pending.pop(producer_id, {})
        if not commit:
            return
        for group, offsets in groups.items():
            committed = self._by_group.setdefault(group, {})
            for tp, stored in offsets.items():
                # The later record wins, as in the compacted log; not the later marker.
                current = committed.get(tp)
                if current is None or current.record_offset < stored.record_offset:
                    committed[tp] = stored


def _remove_from(groups: dict[str, Offsets], group: str, tp: TopicPartition) -> None:
    offsets = groups.get(group)
    if offsets is not None and offsets.pop(tp, None) is not None and not offsets:
        del groups[group]
