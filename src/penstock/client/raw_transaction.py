"""A transaction of raw record batches: written to any partitions, then decided, or prepared to be
decided later and from elsewhere (two-phase commit, KIP-939).

Invariant: what is committed or prepared was acknowledged by every in-sync replica; after a failed
write a transaction can only be aborted.
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

    Owned by the event loop of its client. Writes to several partitions may go side by side; those
    to one partition go in the order in which they were asked for.
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
        self._writing = 0  # writes that are under way
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
        """Fences and aborts whatever was open under this transactional id, prepared or not.

        With `two_phase` it may be prepared, and is never aborted for its age.
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
        """Tell the coordinator of partitions before they are written: one request for all."""
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
        """Append one record batch, whoever's it was before: it becomes this producer's. A batch
        that can be written to is changed where it is."""
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
        """Promise to be able to commit. What it gives back decides the transaction, by
        `client.transactions.end`, from any process and whenever it may be; until then, readers of
        committed records stop before it. None: nothing was written, so nothing is to be decided."""
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
        if self._added:  # else the coordinator knows of no transaction that could be ended
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
        """A write that was cut short may have been done or not: nobody can tell any more."""
        try:
            yield
        except BaseException as error:
            if self._failure is None:
                client_error = error if isinstance(error, ClientError) else None
                self._failure = client_error or ClientError(
                    "a write was given up before its answer"
                )
            raise
