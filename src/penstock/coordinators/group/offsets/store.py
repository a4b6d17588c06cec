"""The committed offsets of one shard: what the log's records say, in memory. Decides nothing.

Changed by `replay` and `end_transaction` alone, so a replay of the log gives the same again.
Invariant: no empty entries: a group is here exactly while it has an offset.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.coordinators.group.records import OffsetKey, OffsetValue
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

NO_RECORD_OFFSET = -1


class Stored(NamedTuple):
    value: OffsetValue
    record_offset: int  # where its record stands in the log


Offsets = dict[TopicPartition, Stored]
_NOTHING: Mapping[TopicPartition, Stored] = {}


class OffsetStore:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, Offsets] = {}
        # Committed in a transaction that is open: producer -> group -> offsets.
        self._pending: dict[int, dict[str, Offsets]] = {}

    # -- looking ---------------------------------------------------------------------------

    def find(self, group: str, partition: TopicPartition) -> OffsetValue | None:
        stored = self._by_group.get(group, _NOTHING).get(partition)
        return None if stored is None else stored.value

    def of_group(self, group: str) -> Iterator[tuple[TopicPartition, OffsetValue]]:
        """In order of their first commit. Not to be changed meanwhile."""
        for partition, stored in self._by_group.get(group, _NOTHING).items():
            yield partition, stored.value

    def has_group(self, group: str) -> bool:
        """Whether anything is committed, or would be with the end of an open transaction."""
        return group in self._by_group or self.has_pending(group)

    def groups(self) -> set[str]:
        waiting = (each for groups in self._pending.values() for each in groups)
        return {*self._by_group, *waiting}

    def has_pending(self, group: str) -> bool:
        return any(group in groups for groups in self._pending.values())

    def pending_of(self, group: str) -> set[TopicPartition]:
        """Those that an open transaction commits to."""
        found: set[TopicPartition] = set()
        for groups in self._pending.values():
            found.update(groups.get(group, _NOTHING))
        return found

    def count(self) -> int:
        return sum(map(len, self._by_group.values()))

    def snapshot(self) -> object:
        """Equal for equal states."""
        groups = {group: dict(offsets) for group, offsets in self._by_group.items()}
        pending = {
            producer: {group: dict(offsets) for group, offsets in each.items()}
            for producer, each in self._pending.items()
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
        partition = TopicPartition(key.topic, key.partition)
        if value is None:
            self._remove(key.group, partition)
            return
        is_plain = producer_id == NO_PRODUCER_ID
        groups = self._by_group if is_plain else self._pending.setdefault(producer_id, {})
        groups.setdefault(key.group, {})[partition] = Stored(value, record_offset)

    def _remove(self, group: str, partition: TopicPartition) -> None:
        """A deletion holds against open transactions too: their commit must not bring it back."""
        _take_out(self._by_group, group, partition)
        for producer in list(self._pending):
            groups = self._pending[producer]
            _take_out(groups, group, partition)
            if not groups:
                del self._pending[producer]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        groups = self._pending.pop(producer_id, {})
        if not commit:
            return
        for group, offsets in groups.items():
            kept = self._by_group.setdefault(group, {})
            for partition, stored in offsets.items():
                # The later record wins, as it does in the compacted log; not the later marker.
                known = kept.get(partition)
                if known is None or known.record_offset < stored.record_offset:
                    kept[partition] = stored


def _take_out(groups: dict[str, Offsets], group: str, partition: TopicPartition) -> None:
    offsets = groups.get(group)
    if offsets is not None and offsets.pop(partition, None) is not None and not offsets:
        del groups[group]
