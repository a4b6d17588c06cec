"""Produce, with batches of a transaction: written once it is sure that the transaction goes on.

The first batch for a partition asks the coordinator, and from version 12 on adds the partition to
the transaction (KIP-890); further ones are known by the log. While the coordinator is asked, the
connection's next request waits: a producer's batches stay in their order. So does a copy of them,
which counts as received and not yet served.
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

FIRST_WITH_ABORTABLE = 11  # before, clients take it for a fault of their own
FIRST_THAT_ADDS = 12
FLAGS_POSITION = ATTRIBUTES_POSITION + 1  # the attributes' low byte
_UNKNOWN = Offset(-1)

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the place of the partition in the request
Write = Callable[[ProduceRequest, Batches, Refusals], None]

# The coordinator could not be asked, or not now. Producers of all ages try again after this code,
# and ask nobody for metadata first.
_PASSING = frozenset(
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
    asked: ProduceRequest,
    batches: Batches,
    refused: Refusals,
    write: Write,
) -> None:
    """Have `write` do what may be done, with refusals for the rest."""
    headers = {
        name: read_header(records)
        for name, records in batches
        if records[FLAGS_POSITION] & TRANSACTIONAL
    }
    new = {name: each for name, each in headers.items() if not _goes_on(services, name, each)}
    if not new:
        write(asked, batches, refused)
        return
    flaws = _find_flaws(new, dict(batches))
    sound = [name for name in new if name not in flaws]
    if not sound:
        write(asked, *_sort_out(batches, refused, flaws))
        return
    assert asked.transactional_id is not None  # or the permission for it was missing
    check = TransactionCheck(
        services,
        transactional_id=asked.transactional_id,
        producer_id=new[sound[0]].producer_id,
        producer_epoch=new[sound[0]].producer_epoch,
        adds=request.version >= FIRST_THAT_ADDS,
    )
    rest = [name for name in headers if name not in flaws]
    _Verified(request, asked, batches, refused, flaws, write, check).ask(sound, rest)


def _goes_on(services: "Services", name: TopicPartition, header: BatchHeader) -> bool:
    """Whether the log has this transaction open. If the header lies, the log's own checks refuse
    the batch."""
    partition = services.replicas.find(name)
    return partition is not None and partition.log.producers.has_transaction(
        header.producer_id, header.producer_epoch
    )


class _Verified:
    """A request that waits for its transaction's coordinator, or does not have to."""

    def __init__(
        self,
        request: Request,
        asked: ProduceRequest,
        batches: Batches,
        refused: Refusals,
        flaws: dict[TopicPartition, PartitionAppended],
        write: Write,
        check: TransactionCheck,
    ) -> None:
        self._request = request
        self._asked = asked
        self._batches = batches
        self._refused = refused
        self._flaws = flaws
        self._write = write
        self._check = check
        self._room: Releasable | None = None  # of the copy that waits
        self._is_over = False

    def ask(self, about: list[TopicPartition], names: list[TopicPartition]) -> None:
        """And then look again at all of them: what went on may have ended meanwhile."""
        self._request.message = None
        self._check.ask(about, lambda: self._go_on(names))
        # The receive buffer is not ours any longer when the handler returns.
        self._asked = self._asked.without_records()
        if not self._is_over:
            self._keep_batches()

    def _keep_batches(self) -> None:
        self._room = self._request.in_flight.try_keep(sum(len(each) for _, each in self._batches))
        if self._room is None:
            self._flaws = dict.fromkeys((name for name, _ in self._batches), _NO_ROOM)
            self._end()
        else:
            self._batches = [(name, memoryview(bytearray(each))) for name, each in self._batches]

    def _go_on(self, names: list[TopicPartition]) -> None:
        if self._is_over:
            return
        for name in names:
            code = self._check.find_refusal(name)
            if code is not ErrorCode.NONE:
                self._flaws[name] = _tell(code, self._request.version)
        self._end()

    def _end(self) -> None:
        self._is_over = True
        batches, self._batches = self._batches, []
        try:
            self._write(self._asked, *_sort_out(batches, self._refused, self._flaws))
        finally:
            if self._room is not None:
                self._room.release()


def _find_flaws(
    headers: dict[TopicPartition, BatchHeader], batches: dict[TopicPartition, memoryview]
) -> dict[TopicPartition, PartitionAppended]:
    """What is wrong before anybody is asked. A damaged batch may name any producer: whoever sent
    it is not to be told that it is fenced."""
    flaws = {
        name: _DAMAGED
        for name, header in headers.items()
        if header.size != len(batches[name]) or not is_crc_valid(batches[name], 0, header.size)
    }
    sound = {name: each for name, each in headers.items() if name not in flaws}
    flaws.update({name: _NO_PRODUCER for name, each in sound.items() if each.producer_id < 0})
    flaws.update({name: _INTERNAL for name in sound if name.topic in INTERNAL_TOPICS})
    who = {(each.producer_id, each.producer_epoch) for each in sound.values()}
    if len(who) > 1:
        flaws.update(dict.fromkeys(sound, _TWO_PRODUCERS))
    return flaws


def _sort_out(
    batches: Batches, refused: Refusals, flaws: dict[TopicPartition, PartitionAppended]
) -> tuple[Batches, Refusals]:
    """The batches without flaw, and all refusals by their places in the request."""
    if not flaws:
        return batches, refused
    places = (each for each in range(len(batches) + len(refused)) if each not in refused)
    placed = list(zip(places, batches, strict=True))
    told = {place: flaws[name] for place, (name, _) in placed if name in flaws}
    kept = [(name, records) for _, (name, records) in placed if name not in flaws]
    return kept, {**refused, **told}


def _tell(code: ErrorCode, version: int) -> PartitionAppended:
    if code in _PASSING:
        return _refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction's coordinator could not be asked about this partition: {code.name}, "
            f"{code.message}; try again",
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


_DAMAGED = _refuse(
    ErrorCode.CORRUPT_MESSAGE, "the batch's size or CRC does not match its bytes; send it again"
)
_NO_PRODUCER = _refuse(ErrorCode.INVALID_RECORD, "the batch is transactional without a producer id")
_NO_ROOM = _refuse(
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "too many batches wait for their transactions' coordinators; try again",
)
_INTERNAL = _refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients do not write to this topic")
_TWO_PRODUCERS = _refuse(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "the request has transactional batches of more than one producer; a transaction has one",
)
