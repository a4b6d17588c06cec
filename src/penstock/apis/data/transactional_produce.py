"""Produce with transactional batches: appended once their transaction is verified as open.

The first batch in a partition is verified with the coordinator, and from version 12 on adds the
partition to the transaction (KIP-890); the log knows the transaction of further ones. During a
verification the connection's next request waits, so a producer's batches stay in order, and a copy
of them is kept, which counts as receive memory.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.apis.data.transaction_check import TransactionCheck
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from penstock.model.slices import Releasable
from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    TRANSACTIONAL,
    BatchHeader,
    is_crc_valid,
    read_header,
)
from penstock.protocol.produce_request import ProduceRequest
from penstock.replication.delayed_produce import PartitionAppended

if TYPE_CHECKING:
    from penstock.apis.services import Services

FIRST_WITH_ABORTABLE = 11  # older clients mistake it for an error of their own
FIRST_WITH_IMPLICIT_ADD = 12
FLAGS_POSITION = ATTRIBUTES_POSITION + 1  # the attributes' low byte
_UNKNOWN = Offset(-1)

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the partition's position in the request
Write = Callable[[ProduceRequest, Batches, Refusals], None]

# The coordinator cannot be reached, or not now. Producers of all versions retry on the code that
# these become, without a metadata request.
_TRANSIENT = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


def write_verified(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    batches: Batches,
    refused: Refusals,
    write: Write,
) -> None:
    """Call `write` with the batches that may be appended and with refusals for the rest."""
    headers = {
        tp: read_header(records)
        for tp, records in batches
        if records[FLAGS_POSITION] & TRANSACTIONAL
    }
    new = {
        tp: header for tp, header in headers.items() if not _has_transaction(services, tp, header)
    }
    if not new:
        write(produced, batches, refused)
        return
    rejected = _find_rejected(new, dict(batches))
    sound = [tp for tp in new if tp not in rejected]
    if not sound:
        write(produced, *_sort_out(batches, refused, rejected))
        return
    assert produced.transactional_id is not None  # else authorization has failed before
    check = TransactionCheck(
        services,
        transactional_id=produced.transactional_id,
        producer_id=new[sound[0]].producer_id,
        producer_epoch=new[sound[0]].producer_epoch,
        adds=request.version >= FIRST_WITH_IMPLICIT_ADD,
    )
    rest = [tp for tp in headers if tp not in rejected]
    _Verified(request, produced, batches, refused, rejected, write, check).verify(sound, rest)


def _has_transaction(services: "Services", tp: TopicPartition, header: BatchHeader) -> bool:
    """Whether the log has this transaction open. The log's own checks refuse a forged header."""
    partition = services.replicas.find(tp)
    return partition is not None and partition.log.producers.has_transaction(
        header.producer_id, header.producer_epoch
    )


class _Verified:
    """A request whose transaction is verified with its coordinator, if it has to be."""

    def __init__(
        self,
        request: Request,
        produced: ProduceRequest,
        batches: Batches,
        refused: Refusals,
        rejected: dict[TopicPartition, PartitionAppended],
        write: Write,
        check: TransactionCheck,
    ) -> None:
        self._request = request
        self._produced = produced
        self._batches = batches
        self._refused = refused
        self._rejected = rejected
        self._write = write
        self._check = check
        self._memory: Releasable | None = None  # of the copied batches
        self._is_done = False

    def verify(self, unverified: list[TopicPartition], tps: list[TopicPartition]) -> None:
        """Verify, then check all batches again: an open transaction may have ended meanwhile."""
        self._request.message = None
        self._check.verify(unverified, lambda: self._on_verified(tps))
        # The receive buffer is reused once the handler returns.
        self._produced = self._produced.without_records()
        if not self._is_done:
            self._keep_batches()

    def _keep_batches(self) -> None:
        self._memory = self._request.in_flight.try_keep(
            sum(len(records) for _, records in self._batches)
        )
        if self._memory is None:
            self._rejected = dict.fromkeys((tp for tp, _ in self._batches), _NO_MEMORY)
            self._finish()
        else:
            self._batches = [(tp, memoryview(bytearray(records))) for tp, records in self._batches]

    def _on_verified(self, tps: list[TopicPartition]) -> None:
        if self._is_done:
            return
        for tp in tps:
            code = self._check.find_refusal(tp)
            if code is not ErrorCode.NONE:
                self._rejected[tp] = _refusal_of(code, self._request.version)
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        batches, self._batches = self._batches, []
        try:
            self._write(self._produced, *_sort_out(batches, self._refused, self._rejected))
        finally:
            if self._memory is not None:
                self._memory.release()


def _find_rejected(
    headers: dict[TopicPartition, BatchHeader], batches: dict[TopicPartition, memoryview]
) -> dict[TopicPartition, PartitionAppended]:
    """Refusals that need no coordinator. A corrupt batch may name any producer, so its sender must
    not be told that it is fenced."""
    rejected = {
        tp: _CORRUPT
        for tp, header in headers.items()
        if header.size != len(batches[tp]) or not is_crc_valid(batches[tp], 0, header.size)
    }
    sound = {tp: header for tp, header in headers.items() if tp not in rejected}
    rejected.update({tp: _NO_PRODUCER for tp, header in sound.items() if header.producer_id < 0})
    rejected.update({tp: _INTERNAL for tp in sound if tp.topic in INTERNAL_TOPICS})
    producers = {(header.producer_id, header.producer_epoch) for header in sound.values()}
    if len(producers) > 1:
        rejected.update(dict.fromkeys(sound, _TWO_PRODUCERS))
    return rejected


def _sort_out(
    batches: Batches, refused: Refusals, rejected: dict[TopicPartition, PartitionAppended]
) -> tuple[Batches, Refusals]:
    """The remaining batches, and all refusals by their positions in the request."""
    if not rejected:
        return batches, refused
    every_position = range(len(batches) + len(refused))
    positions = (position for position in every_position if position not in refused)
    positioned = list(zip(positions, batches, strict=True))
    added = {position: rejected[tp] for position, (tp, _) in positioned if tp in rejected}
    kept = [(tp, records) for _, (tp, records) in positioned if tp not in rejected]
    return kept, {**refused, **added}


def _refusal_of(code: ErrorCode, version: int) -> PartitionAppended:
    if code in _TRANSIENT:
        return _refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction coordinator could not verify this partition: {code.name}, "
            f"{code.message}; retry",
        )
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return _refuse(
            ErrorCode.INVALID_TXN_STATE,
            "this partition is not part of an open transaction of the producer; abort and begin "
            "another",
        )
    return _refuse(code, code.message)


def _refuse(code: ErrorCode, message: str) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


_CORRUPT = _refuse(
    ErrorCode.CORRUPT_MESSAGE, "the batch's size or CRC does not match its bytes; send it again"
)
_NO_PRODUCER = _refuse(ErrorCode.INVALID_RECORD, "the batch is transactional without a producer id")
_NO_MEMORY = _refuse(
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "too many batches wait for their transaction coordinators; retry",
)
_INTERNAL = _refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not produce to this topic")
_TWO_PRODUCERS = _refuse(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "the request has transactional batches of more than one producer; a transaction has one",
)
