"""Writes a transaction of raw record batches, then commits, aborts or prepares it.

A prepared transaction is decided later, by any process (two-phase commit, KIP-939). Invariant:
everything committed or prepared was acknowledged by every in-sync replica; after a failed write a
transaction can only be aborted.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import Produced
from penstock.client.errors import ClientError, TransactionAbortable, TransactionOver
from penstock.client.transaction_values import PreparedState, TransactionalProducerId
from penstock.client.transactions import DEFAULT_TRANSACTION_TIMEOUT_MS
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import MAX_SEQUENCE, Buffer, read_header, stamp_producer


class RawTransaction:
    """`await RawTransaction.begin(...)`, `write`, then one of `commit`, `abort` and `prepare`.

    Owned by the event loop of its client. Partitions are written in parallel; writes to one
    partition keep the order of the calls.
    """

    def __init__(
        self, client: ClusterClient, producer: TransactionalProducerId, *, two_phase: bool
    ) -> None:
        self.producer = producer
        self._client = client
        self._two_phase = two_phase
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._next_sequences: dict[TopicPartition, int] = {}
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._writing = 0  # writes in progress
        self._failure: ClientError | None = None  # the first
        self._is_over = False

    @classmethod
    async def begin(
        cls,
        client: ClusterClient,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        two_phase: bool = False,
        timeout_ms: int | None = None,
    ) -> Self:
        """Fences the previous producer of this transactional id and aborts its open transaction,
        prepared or not.

        With `two_phase` the transaction may be prepared and never times out.
        """
        initialised = await client.transactions.init_producer(
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            two_phase=two_phase,
            timeout_ms=timeout_ms,
        )
        return cls(client, initialised.producer, two_phase=two_phase)

    async def add(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Add partitions to the transaction before they are written, in one request."""
        self._check_open()
        async with self._adding:
            new = [fromkey for fromkey in dict.fromkeys(partitions) if fromkey not in self._added]
            if new:
                with self._noting_failure():
                    await self._client.transactions.add_partitions(
                        self.producer, new, timeout_ms=timeout_ms
                    )
                self._added.update(new)

    async def write(
        self, partition: TopicPartition, batch: Buffer, *, timeout_ms: int | None = None
    ) -> Produced:
        """Append one record batch after stamping it with this producer's id. A writable buffer is
        changed in place."""
        self._check_open()
        self._writing += 1
        try:
            if partition not in self._added:
                await self.add([partition], timeout_ms=timeout_ms)
            async with self._turns.setdefault(partition, asyncio.Lock()):
                self._check_open()
                with self._noting_failure():
                    return await self._append(partition, batch, timeout_ms)
        finally:
            self._writing -= 1

    async def _append(
        self, partition: TopicPartition, batch: Buffer, timeout_ms: int | None
    ) -> Produced:
        view = memoryview(batch)
        own = bytearray(view) if view.readonly else view
        sequence = self._next_sequences.get(partition, 0)
        stamp_producer(
            own,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        produced = await self._client.produce(
            partition,
            own,
            transactional_id=self.producer.transactional_id,
            timeout_ms=timeout_ms,
        )
        count = read_header(own).last_offset_delta + 1
        self._next_sequences[partition] = (sequence + count) & MAX_SEQUENCE
        return produced

    async def prepare(self) -> PreparedState | None:
        """Prepare to commit. The returned state decides the transaction through
        `client.transactions.end`, from any process and at any time; until then, read_committed
        consumers stop before it. None: nothing was written, so there is nothing to decide."""
        if not self._two_phase:
            raise ValueError("only a transaction that began with two_phase=True can be prepared")
        self._end()
        return PreparedState(*self.producer) if self._added else None

    async def commit(self, *, timeout_ms: int | None = None) -> None:
        self._end()
        await self._decide(commit=True, timeout_ms=timeout_ms)

    async def abort(self, *, timeout_ms: int | None = None) -> None:
        self._check_not_over()
        self._is_over = True
        await self._decide(commit=False, timeout_ms=timeout_ms)

    async def _decide(self, *, commit: bool, timeout_ms: int | None) -> None:
        if self._added:  # without partitions, the coordinator has no transaction to end
            await self._client.transactions.end(self.producer, commit=commit, timeout_ms=timeout_ms)

    def _end(self) -> None:
        self._check_open()
        if self._writing:
            raise TransactionAbortable(
                f"{self._writing} writes of {self.producer.transactional_id!r} are not answered "
                "yet: wait for them first"
            )
        self._is_over = True

    def _check_open(self) -> None:
        self._check_not_over()
        if self._failure is not None:
            raise TransactionAbortable(
                f"the transaction of {self.producer.transactional_id!r} can only be aborted: "
                f"{self._failure}"
            ) from self._failure

    def _check_not_over(self) -> None:
        if self._is_over:
            raise TransactionOver(
                f"the transaction of {self.producer.transactional_id!r} is over; begin another one"
            )

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """An interrupted write may have been appended or not, so only an abort is possible."""
        try:
            yield
        except BaseException as error:
            if self._failure is None:
                client_error = error if isinstance(error, ClientError) else None
                self._failure = client_error or ClientError(
                    "a write was given up before its answer"
                )
            raise
