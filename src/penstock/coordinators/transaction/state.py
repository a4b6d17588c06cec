"""The transactional ids of one shard, as the log's records describe them. Decides nothing.

Changed by `replay` alone, so that a replay of the log, compacted or not, gives the same again.
`connections` is volatile: a reload forgets it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.coordinators.transaction.connections import Connections
from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord


class TransactionShardState:
    """Owned by its shard."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._ongoing: set[str] = set()
        self.transactions: Mapping[str, Transaction] = MappingProxyType(self._by_id)
        self.connections = Connections()

    def replay(self, record: TransactionRecord) -> None:
        transactional_id, value = record
        if value is None:
            self._by_id.pop(transactional_id, None)
            self.connections.forget(transactional_id)
        else:
            self._by_id[transactional_id] = value
        if value is not None and value.state is State.ONGOING:
            self._ongoing.add(transactional_id)
        else:
            self._ongoing.discard(transactional_id)

    def ongoing(self) -> list[str]:
        return sorted(self._ongoing)

    def prepared(self) -> dict[str, Transaction]:
        """Decided, but some partition may still lack its marker."""
        return {
            transactional_id: transaction
            for transactional_id, transaction in self._by_id.items()
            if transaction.state.is_prepared
        }

    def snapshot(self) -> object:
        """The durable state; equal for equal states."""
        return dict(self._by_id), set(self._ongoing)
