"""Finds hanging transactions and the age of open ones, for `penstock transaction`.

A transaction hangs if a partition holds it open and no coordinator has it: then nobody will ever
end it, and read_committed consumers stop before it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.client.transaction_values import ONGOING, OpenTransaction, TransactionDescription
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

_NO_EPOCH = -1
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    description: TransactionDescription
    now_ms: int

    @property
    def age_ms(self) -> int | None:
        """None: no transaction is open."""
        if self.description.start_ms is None or not self.description.is_open:
            return None
        return max(0, self.now_ms - self.description.start_ms)

    @property
    def is_two_phase(self) -> bool:
        return self.description.is_two_phase

    def as_json(self) -> dict[str, object]:
        description = self.description
        return {
            "transactional_id": description.transactional_id,
            "coordinator": description.coordinator.id,
            "state": description.state,
            "producer_id": description.producer_id,
            "producer_epoch": description.producer_epoch,
            "two_phase": self.is_two_phase,
            "timeout_ms": None if self.is_two_phase else description.timeout_ms,
            "start_ms": description.start_ms,
            "age_ms": self.age_ms,
            "partitions": [partition._asdict() for partition in description.partitions],
        }


async def list_open(
    client: ClusterClient, topics: Collection[str] | None
) -> Sequence[OpenTransaction]:
    """Open transactions in the partitions of these topics, or of all."""
    metadata = await client.metadata(topics)
    for topic in metadata.topics.values():
        topic.check()
    partitions = [
        TopicPartition(topic.name, partition.partition)
        for topic in metadata.topics.values()
        for partition in topic.partitions
    ]
    return await client.transactions.list_open(partitions)


async def find_hanging(
    client: ClusterClient, topics: Collection[str] | None, *, min_age_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Hanging transactions of these topics, or of all. Younger ones are skipped: they may just be
    ending."""
    old = [
        transaction
        for transaction in await list_open(client, topics)
        if now_ms - transaction.last_timestamp_ms >= min_age_ms
    ]
    return unknown_to(old, await _describe_producers(client, old)) if old else []


async def _describe_producers(
    client: ClusterClient, open_ones: Iterable[OpenTransaction]
) -> list[TransactionDescription]:
    producer_ids = sorted({one.producer_id for one in open_ones})
    listed = await client.transactions.list_transactions(producer_ids=producer_ids)
    described = []
    for transaction in listed:
        try:
            described.append(await client.transactions.describe(transaction.transactional_id))
        except RefusedByBroker as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return described


def unknown_to(
    open_ones: Sequence[OpenTransaction], described: Iterable[TransactionDescription]
) -> list[OpenTransaction]:
    """Transactions that no coordinator knows, or knows only with an older epoch."""
    epochs = {
        (transaction.producer_id, partition): transaction.producer_epoch
        for transaction in described
        if transaction.is_open
        for partition in transaction.partitions
    }
    return [
        one
        for one in open_ones
        if one.producer_epoch > epochs.get((one.producer_id, one.tp), _NO_EPOCH)
    ]


async def abort_by_id(client: ClusterClient, transactional_id: str) -> TransactionDescription:
    """Returns the aborted transaction. If a newer producer owns it, only an even newer producer can
    abort it."""
    description = await client.transactions.describe(transactional_id)
    if description.state != ONGOING:
        raise RefusedByBroker(
            f"abort {transactional_id!r}",
            ErrorCode.INVALID_TXN_STATE,
            f"it has no open transaction: its state is {description.state}",
        )
    try:
        await client.transactions.end(description.producer, commit=False)
    except RefusedByBroker as error:
        if error.code not in _FENCED:
            raise
        await client.transactions.init_producer(transactional_id)
    return description


async def abort_in_partition(
    client: ClusterClient, partition: TopicPartition, start_offset: int
) -> OpenTransaction:
    """Returns the aborted transaction: the one that starts at this offset."""
    open_transactions = await client.transactions.list_open([partition])
    for transaction in open_transactions:
        if transaction.start_offset == start_offset:
            await client.transactions.abort_hanging(transaction)
            return transaction
    starts = ", ".join(str(transaction.start_offset) for transaction in open_transactions) or "none"
    raise RefusedByBroker(
        f"abort in {partition}",
        ErrorCode.INVALID_TXN_STATE,
        f"no open transaction begins at offset {start_offset}; open transactions begin at {starts}",
    )
