"""Transactions of a cluster: the requests of producers to the coordinator, and of admins.

No batches here: `raw_transaction` writes those. Every request is idempotent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.deadline import Deadline
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.metadata import BrokerMetadata
from penstock.client.router import Router
from penstock.client.transaction_calls import (
    abort_marker_call,
    add_partitions_call,
    check,
    check_added,
    describe_call,
    describe_producers_call,
    end_call,
    init_producer_call,
    list_call,
    read_described,
    read_initialised,
    read_listed,
    read_marked,
    read_producers,
)
from penstock.client.transaction_values import (
    InitialisedProducer,
    ListedTransaction,
    OpenTransaction,
    TransactionalProducerId,
    TransactionDescription,
)
from penstock.model.ids import TopicPartition

DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
ANY_DURATION = -1


class TransactionClient:
    """Every operation takes `timeout_ms`, the time for all its attempts together."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._coordinators = Coordinators(router, CoordinatorKind.TRANSACTION)

    # Requests of producers.

    async def init_producer(
        self,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        two_phase: bool = False,
        keep_prepared: bool = False,
        timeout_ms: int | None = None,
    ) -> InitialisedProducer:
        """Fence every other producer with this transactional id and abort its open transaction;
        with `keep_prepared` a prepared transaction is kept for the new producer to decide.

        `two_phase`: transactions never time out; the broker must allow it
        (transaction.two.phase.commit.enable).
        """
        call = init_producer_call(
            transactional_id,
            timeout_ms=transaction_timeout_ms,
            two_phase=two_phase,
            keep_prepared=keep_prepared,
        )

        async def ask(node: BrokerMetadata, deadline: Deadline) -> InitialisedProducer:
            answer = await self._router.ask(node.address, call, deadline)
            return read_initialised(transactional_id, answer)

        what = f"begin as {transactional_id!r}"
        return await self._coordinators.persist(what, transactional_id, ask, timeout_ms)

    async def add_partitions(
        self,
        producer: TransactionalProducerId,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Add all partitions or none; partitions already in the transaction are accepted again."""
        what = f"add partitions to the transaction of {producer.transactional_id!r}"
        call = add_partitions_call(producer, partitions)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            check_added(what, await self._router.ask(node.address, call, deadline))

        await self._coordinators.persist(what, producer.transactional_id, ask, timeout_ms)

    async def end(
        self,
        producer: TransactionalProducerId,
        *,
        commit: bool,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit or abort. Repeating the decision is allowed; the opposite decision is an error."""
        verb = "commit" if commit else "abort"
        what = f"{verb} the transaction of {producer.transactional_id!r}"
        call = end_call(producer, commit=commit)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> None:
            check(what, await self._router.ask(node.address, call, deadline))

        await self._coordinators.persist(what, producer.transactional_id, ask, timeout_ms)

    # Requests of admins.

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = ANY_DURATION,
        timeout_ms: int | None = None,
    ) -> list[ListedTransaction]:
        """Transactions of every coordinator, sorted by transactional id."""
        deadline = self._router.deadline(timeout_ms)
        call = list_call(states, producer_ids, min_duration_ms=min_duration_ms)
        transactions = await self._router.persist_with_all(
            "list transactions", call, lambda broker, answer: read_listed(answer, broker), deadline
        )
        return sorted(transactions)

    async def describe(
        self, transactional_id: str, *, timeout_ms: int | None = None
    ) -> TransactionDescription:
        """Raises TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""
        call = describe_call(transactional_id)

        async def ask(node: BrokerMetadata, deadline: Deadline) -> TransactionDescription:
            return read_described(await self._router.ask(node.address, call, deadline), node)

        what = f"describe transactional id {transactional_id!r}"
        return await self._coordinators.persist(what, transactional_id, ask, timeout_ms)

    async def list_open(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> list[OpenTransaction]:
        """Open transactions that hold back the last stable offset of these partitions, as their
        leaders report them."""
        deadline = self._router.deadline(timeout_ms)

        async def ask(
            node: BrokerMetadata, part: Mapping[TopicPartition, None]
        ) -> Mapping[TopicPartition, list[OpenTransaction] | ClientError]:
            answer = await self._router.ask(node.address, describe_producers_call(part), deadline)
            return {
                partition: RefusedByBroker(f"producers of {partition}", code, message)
                if code
                else open_ones
                for partition, (code, message, open_ones) in read_producers(answer).items()
            }

        wanted = dict.fromkeys(partitions)
        producers = await self._router.persist_with_leaders("list producers", wanted, ask, deadline)
        return sorted(one for open_ones in producers.values() for one in open_ones)

    async def abort_hanging(
        self, hanging: OpenTransaction, *, timeout_ms: int | None = None
    ) -> None:
        """Abort a transaction in a partition whose coordinator no longer knows it."""
        deadline = self._router.deadline(timeout_ms)
        what = f"abort producer {hanging.producer_id} in {hanging.tp}"
        call = abort_marker_call(hanging)

        async def ask(
            node: BrokerMetadata, part: Mapping[TopicPartition, None]
        ) -> Mapping[TopicPartition, ClientError | None]:
            codes = read_marked(await self._router.ask(node.address, call, deadline))
            return {tp: RefusedByBroker(what, code) if code else None for tp, code in codes.items()}

        wanted = {hanging.tp: None}
        await self._router.persist_with_leaders(what, wanted, ask, deadline)
