"""The transactional ids of one shard: what the log's records say, in memory. Decides nothing.

Changed by `replay` alone, so a replay of the log gives the same again, compacted or not.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord


class TransactionShardState:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._ongoing: set[str] = set()
        self.known: Mapping[str, Transaction] = MappingProxyType(self._by_id)

    def replay(self, record: TransactionRecord) -> None:
        transactional_id, value = record
        if value is None:
            self._by_id.pop(transactional_id, None)
        else:
            self._by_id[transactional_id] = value
        if value is not None and value.state is State.ONGOING:
            self._ongoing.add(transactional_id)
        else:
            self._ongoing.discard(transactional_id)

    def ongoing(self) -> list[str]:
        return sorted(self._ongoing)

    def prepared(self) -> dict[str, Transaction]:
        """Decided, and not known to every partition."""
        return {name: each for name, each in self._by_id.items() if each.state.is_prepared}

    def snapshot(self) -> object:
        """Equal for equal states."""
        return dict(self._by_id), set(self._ongoing)
