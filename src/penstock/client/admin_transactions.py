"""The part of `AsyncAdmin` for transactions and the producers that hold them open."""

from collections.abc import Iterable

from penstock.client.admin_arguments import PartitionsGiven, read_names
from penstock.client.admin_operations import AdminOperations, ask_for_each
from penstock.client.transaction_values import (
    ListedTransaction,
    OpenTransaction,
    TransactionDescription,
)
from penstock.client.transactions import ANY_DURATION


class TransactionOperations(AdminOperations):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> list[ListedTransaction]:
        """Transactional ids of every coordinator with their states ("Ongoing", "Empty", ...); only
        those in these states, of these producers, or open for so long."""
        return await self._connected().transactions.list_transactions(
            states=list(states),
            producer_ids=list(producer_ids),
            min_duration_ms=ANY_DURATION if min_duration_ms is None else min_duration_ms,
            timeout_ms=self._ms(timeout_s),
        )

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer, time-out and partitions of each."""
        names, client = read_names("transactional id", transactional_ids), self._connected()
        timeout_ms = self._ms(timeout_s)
        return await ask_for_each(
            names, lambda name: client.transactions.describe(name, timeout_ms=timeout_ms)
        )

    async def list_open_transactions(
        self, partitions: PartitionsGiven, *, timeout_s: float | None = None
    ) -> list[OpenTransaction]:
        """Open transactions in these partitions, as their leaders know them: `read_committed`
        consumers wait for them."""
        timeout_ms = self._ms(timeout_s)
        wanted = await self._get_partitions(partitions, timeout_ms)
        return await self._connected().transactions.list_open(wanted, timeout_ms=timeout_ms)

    async def abort_transaction(
        self, hanging: OpenTransaction, *, timeout_s: float | None = None
    ) -> None:
        """End a transaction in a partition whose coordinator does not know it any more: one that
        `list_open_transactions` returned. Never one whose producer still runs."""
        await self._connected().transactions.abort_hanging(hanging, timeout_ms=self._ms(timeout_s))

    async def fence_producers(
        self, transactional_ids: str | Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Shut out the producers with these transactional ids; their open transactions are
        aborted."""
        names, client = read_names("transactional id", transactional_ids), self._connected()
        timeout_ms = self._ms(timeout_s)
        await ask_for_each(
            names, lambda name: client.transactions.init_producer(name, timeout_ms=timeout_ms)
        )
